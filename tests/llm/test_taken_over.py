"""A sequence has one user at a time: calls of an earlier user are refused and do not affect the later one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron import Device, InputError
from pteron.llm import Drawn, LanguageModel, Sampler, Sampling, generate_step

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
A = [1, *range(40, 80)]
B = [5, 17, 99, 250, 3]
RESIDENT = pytest.mark.parametrize("resident", [None, False], ids=["resident", "stepwise"])


@pytest.fixture
def model(device: Device) -> Iterator[LanguageModel]:
    with pteron.load(MODELS / "tiny_llama_q4.pte", device=device) as program:
        yield LanguageModel(program)


def loop(model: LanguageModel, ids: list[int], resident: bool | None) -> Generator[Drawn, None, None]:
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    return generate_step(model, sampler, ids, 8, resident=resident)


def tokens(model: LanguageModel, ids: list[int], resident: bool | None) -> list[int]:
    model.reset()
    return [drawn.token for drawn in loop(model, ids, resident)]


@RESIDENT
@pytest.mark.parametrize(
    "take",
    [
        lambda model: list(loop(model, B, None)),
        lambda model: list(loop(model, B, False)),
        lambda model: model.prefill(B),
        lambda model: model.decode_one_token(7),
        lambda model: model.reset(),
    ],
    ids=["loop", "stepwise loop", "prefill", "token", "reset"],
)
@pytest.mark.parametrize("read", [1, 3])
def test_a_loop_that_lost_its_sequence(
    model: LanguageModel, take: Callable[[LanguageModel], object], resident: bool | None, read: int
) -> None:
    expected = tokens(model, A, resident)
    model.reset()
    old = loop(model, A, resident)
    for _ in range(read):
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
    wrong: list[object] = []
    refused: list[str] = []

    def work(ids: list[int]) -> None:
        for _ in range(25):
            try:
                with model.device.lock:  # makes these two atomic
                    model.reset()
                    user = model.claim()
                found = model.prefill_as(ids, user)
                if not np.allclose(found, expected[tuple(ids)], atol=1e-4):
                    wrong.append(ids)
            except InputError as error:
                refused.append(str(error))
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(ids,)) for ids in (A, B, A)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert all("something else was begun" in message for message in refused)
    model.reset()
    np.testing.assert_allclose(model.prefill(A), expected[tuple(A)], atol=1e-4)


def test_sequences_side_by_side(model: LanguageModel) -> None:
    """Two sequences of one model can be used at the same time, as the error message suggests."""
    expected = [tokens(model, ids, None) for ids in (A, B)]
    model.reset()
    loops = [loop(model, A, None), loop(model.sequence(), B, None)]
    found = [[drawn.token for drawn in pair] for pair in zip(*loops, strict=True)]
    assert [list(column) for column in zip(*found, strict=True)] == expected
