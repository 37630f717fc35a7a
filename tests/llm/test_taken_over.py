"""A sequence has one user at a time: calls of an earlier user are refused and do not affect the later one."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
import pytest
from llm_fixtures import RESIDENT, A, run_in_threads

from pteron import InputError
from pteron.llm import LLM, Drawn, LanguageModel, Sampler, Sampling, generate_step

B = [5, 17, 99, 250, 3]


@pytest.fixture
def model(llm: LLM) -> LanguageModel:
    return llm.model


def loop(model: LanguageModel, ids: list[int], resident: bool | None) -> Generator[Drawn, None, None]:
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    return generate_step(model, sampler, ids, 8, resident=resident)


def tokens(model: LanguageModel, ids: list[int], resident: bool | None) -> list[int]:
    model.reset()
    return [drawn.token for drawn in loop(model, ids, resident)]


@pytest.mark.long(every=2)
@RESIDENT
@pytest.mark.parametrize(
    "take",
    [
        lambda model: list(loop(model, B, None)),
        lambda model: model.prefill(B),
        lambda model: model.decode_one_token(7),
        lambda model: model.reset(),
    ],
    ids=["loop", "prefill", "token", "reset"],
)
def test_a_loop_that_lost_its_sequence(
    model: LanguageModel, take: Callable[[LanguageModel], object], resident: bool | None
) -> None:
    expected = tokens(model, A, resident)
    model.reset()
    old = loop(model, A, resident)
    next(old)
    take(model)
    position, known = model.position, list(model.tokens)
    with pytest.raises(InputError, match="something else was begun on this sequence"):
        next(old)
    old.close()
    assert (model.position, model.tokens) == (position, known)
    assert model.position == len(model.tokens)
    assert tokens(model, A, resident) == expected


@RESIDENT
def test_what_takes_over_goes_on_from_what_is_certain(model: LanguageModel, resident: bool | None) -> None:
    """The new user continues after the tokens that were read, not where the GPU had run ahead to."""
    old = loop(model, A, resident)
    read = [next(old).token for _ in range(3)]
    found = model.prefill([200])
    before = [*A, *read[:2]]
    assert model.tokens == [*before, 200]
    model.reset()
    np.testing.assert_allclose(found, model.prefill([*before, 200]), atol=1e-4)


def test_threads_that_share_a_sequence(model: LanguageModel) -> None:
    """Each call gives the right logits or is refused."""
    expected = {}
    for ids in (A, B):
        model.reset()
        expected[tuple(ids)] = model.prefill(ids)

    def work(ids: list[int]) -> None:
        for _ in range(15):
            try:
                with model.device.lock:  # makes these two atomic
                    model.reset()
                    user = model.claim()
                np.testing.assert_allclose(model.prefill_as(ids, user), expected[tuple(ids)], atol=1e-4)
            except InputError as error:
                if "something else was begun" not in str(error):
                    raise

    run_in_threads(work, (A, B, A))
    model.reset()
    np.testing.assert_allclose(model.prefill(A), expected[tuple(A)], atol=1e-4)
