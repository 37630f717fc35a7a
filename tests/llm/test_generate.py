"""The decode loop: tokens sampled on the GPU are the same as with one step at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from llm_fixtures import MODELS

import pteron
from pteron.llm import LanguageModel, LoopCounters, Sampler, Sampling, generate_step
from pteron.llm.sampling import Drawn

PROMPT = [5, 17, 99, 250, 3]
SAMPLINGS = [
    Sampling(),
    Sampling(repetition_penalty=1.4),
    Sampling(temperature=1.0, seed=7),
    Sampling(temperature=0.7, top_k=11, seed=1),
    Sampling(temperature=1.3, top_p=0.8, seed=2),
    Sampling(temperature=1.0, min_p=0.2, seed=3),
    Sampling(temperature=0.9, top_k=50, top_p=0.9, min_p=0.02, repetition_penalty=1.2, seed=4),
    Sampling(presence_penalty=0.8, frequency_penalty=0.6),
    Sampling(top_logprobs=20),
    Sampling(1.1, 30, 0.9, 0.01, 1.2, 5, 0.5, 0.3, {7: 3.0, 9: -100}, 7),
]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel(pteron.load(MODELS / "tiny_llama_q4.pte"))


@pytest.fixture
def sampler(model: LanguageModel, request: pytest.FixtureRequest) -> Iterator[Sampler]:
    made = Sampler(model.device, model.vocabulary, getattr(request, "param", Sampling()))
    yield made
    made.close()


def draw(
    model: LanguageModel, sampler: Sampler, count: int, resident: bool, counters: LoopCounters | None = None
) -> list[Drawn]:
    model.reset()
    sampler.remember(PROMPT)
    return list(generate_step(model, sampler, PROMPT, count, resident=resident, counters=counters))


@pytest.mark.parametrize("sampler", SAMPLINGS, indirect=True, ids=str)
def test_the_resident_loop_draws_what_single_steps_draw(model: LanguageModel, sampler: Sampler) -> None:
    resident = draw(model, sampler, 24, resident=True)
    stepwise = draw(model, sampler, 24, resident=False)
    assert [step.token for step in resident] == [step.token for step in stepwise]
    assert [[token for token, _ in step.top] for step in resident] == [
        [token for token, _ in step.top] for step in stepwise
    ]
    assert all(len(step.top) == sampler.sampling.top_logprobs for step in resident)
    assert len(resident) == 24


def test_prompts_in_chunks_both_ways() -> None:
    model = LanguageModel(pteron.load(MODELS / "tiny_llama_q4_short.pte"))
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    found = []
    for resident in (True, False):
        model.reset()
        found.append(list(generate_step(model, sampler, list(range(3, 43)), 12, resident=resident)))
    assert found[0] == found[1]


def test_greedy_takes_the_likeliest_and_knows_its_probability(model: LanguageModel, sampler: Sampler) -> None:
    drawn = draw(model, sampler, 10, resident=True)
    model.reset()
    logits = model.prefill(PROMPT).astype(np.float64)
    for step in drawn:
        shares = logits - logits.max()
        expected = shares - np.log(np.exp(shares).sum())
        assert step.token == int(logits.argmax())
        assert step.logprob == pytest.approx(expected[step.token], abs=1e-5)
        logits = model.decode_one_token(step.token).astype(np.float64)


def test_prompts_that_are_refused(model: LanguageModel, sampler: Sampler) -> None:
    model.reset()
    for ids, message in (([], "at least one token"), ([3] * 65, "the context, which holds 64")):
        with pytest.raises(pteron.InputError, match=message):
            next(iter(generate_step(model, sampler, ids, 5)))


def test_a_loop_beside_other_calls() -> None:
    """Calls of another program on the same device, from another thread."""
    model = LanguageModel(pteron.load(MODELS / "tiny_llama_q4.pte"))
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    alone = [step.token for step in generate_step(model, sampler, PROMPT, 30)]
    golden = np.load(MODELS.parent / "programs" / "mlp.npz")
    method = pteron.load(MODELS.parent / "programs" / "mlp.pte")["forward"]
    ended = threading.Event()
    wrong: list[float] = []

    def call_again_and_again() -> None:
        while not ended.is_set():
            (found,) = method(golden["case0_input0"])
            wrong.append(float(np.abs(found - golden["case0_output0"]).max()))

    other = threading.Thread(target=call_again_and_again)
    other.start()
    try:
        for _ in range(3):
            model.reset()
            assert [step.token for step in generate_step(model, sampler, PROMPT, 30)] == alone
    finally:
        ended.set()
        other.join()
    assert len(wrong) > 3
    assert max(wrong) < 1e-5
