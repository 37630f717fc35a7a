"""The decode loop: tokens sampled on the GPU are the same as with one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.llm import LanguageModel, LoopCounters, Sampler, Sampling, generate_step
from pteron.llm.sampling import Drawn

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
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
    resident = draw(model, sampler, 40, resident=True)
    stepwise = draw(model, sampler, 40, resident=False)
    assert [step.token for step in resident] == [step.token for step in stepwise]
    assert [[token for token, _ in step.top] for step in resident] == [
        [token for token, _ in step.top] for step in stepwise
    ]
    assert all(len(step.top) == sampler.sampling.top_logprobs for step in resident)
    assert len(resident) == 40


@pytest.mark.parametrize(
    "name",
    [
        "tiny_llama_q4_emb4",
        "tiny_llama_8da4w",
        "tiny_llama_q4_static",
        "tiny_llama_q4_full",
        "tiny_llama_q4_short",
        "tiny_llama_q4_fp16",
        "tiny_qwen3_fp32",
    ],
)
def test_other_forms_draw_the_same_both_ways(name: str) -> None:
    model = LanguageModel(pteron.load(MODELS / f"{name}.pte"))
    sampling = Sampling(temperature=1.0, seed=11)
    sampler = Sampler(model.device, model.vocabulary, sampling, model.logits_dtype)
    assert model.is_resident
    assert draw(model, sampler, 20, resident=True) == draw(model, sampler, 20, resident=False)


def test_prompts_in_chunks_both_ways() -> None:
    model = LanguageModel(pteron.load(MODELS / "tiny_llama_q4_short.pte"))
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    told = []
    for resident in (True, False):
        model.reset()
        told.append(list(generate_step(model, sampler, list(range(3, 43)), 12, resident=resident)))
    assert told[0] == told[1]


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


def test_the_host_does_not_wait_in_steady_state(model: LanguageModel, sampler: Sampler) -> None:
    counters = LoopCounters()
    draw(model, sampler, 50, resident=True, counters=counters)
    assert counters.tokens == 50
    assert counters.stalls <= 1  # the last token alone: nothing is left to launch behind it


def test_a_loop_plans_once(model: LanguageModel, sampler: Sampler) -> None:
    draw(model, sampler, 5, resident=True)
    before = model.method.counters
    draw(model, sampler, 55, resident=True)
    assert model.method.counters.plans == before.plans
    assert model.method.counters.bytes_read == before.bytes_read  # logits never cross the bus


def test_the_context_bounds_a_loop(model: LanguageModel, sampler: Sampler) -> None:
    drawn = draw(model, sampler, 1000, resident=True)
    assert len(drawn) == 64 - len(PROMPT) + 1  # the last token is drawn from the last position
    assert drawn == draw(model, sampler, 1000, resident=False)
    with pytest.raises(pteron.InputError, match="exceed the context, which holds 64"):
        next(iter(generate_step(model, sampler, [3] * 20, 5)))


def test_a_closed_loop_leaves_the_position_of_its_last_token(model: LanguageModel, sampler: Sampler) -> None:
    model.reset()
    loop = generate_step(model, sampler, PROMPT, 40)
    first = [next(loop).token for _ in range(4)]
    loop.close()
    assert model.position == len(PROMPT) + 3
    rest = [step.token for step in generate_step(model, sampler, first[-1:], 5)]
    assert rest == [step.token for step in draw(model, sampler, 9, resident=False)][4:]


def test_no_tokens_to_start_from(model: LanguageModel, sampler: Sampler) -> None:
    with pytest.raises(pteron.InputError, match="at least one token"):
        next(iter(generate_step(model, sampler, [], 5)))


class TestSampler:
    """Draws from given logits, against their softmax in NumPy."""

    VOCABULARY = 5000  # more than two blocks

    def draws(self, sampling: Sampling, logits: np.ndarray, count: int = 400) -> np.ndarray:
        device = pteron.Device.open()
        sampler = Sampler(device, self.VOCABULARY, sampling)
        tokens = []
        for step in range(count):
            sampler.draw(logits, step)
            tokens.append(np.frombuffer(device.read(sampler.token.buffer, 4), np.int32)[0])
        sampler.close()
        return np.array(tokens)

    def logits(self) -> np.ndarray:
        values = np.random.default_rng(0).normal(-6, 1, self.VOCABULARY)
        values[[17, 2048, 4999]] = [2.0, 1.5, 1.0]
        return values.astype(np.float32)

    def test_top_k_keeps_the_likeliest(self) -> None:
        tokens = self.draws(Sampling(temperature=1.0, top_k=2, seed=1), self.logits(), 200)
        assert set(tokens.tolist()) == {17, 2048}

    def test_top_p_keeps_what_reaches_p(self) -> None:
        logits = self.logits()
        shares = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
        p = float(shares[17] + shares[2048] / 2)  # reached by the second likeliest
        tokens = self.draws(Sampling(temperature=1.0, top_p=p, seed=1), logits, 200)
        assert set(tokens.tolist()) == {17, 2048}

    def test_min_p_keeps_what_is_near_the_likeliest(self) -> None:
        tokens = self.draws(Sampling(temperature=1.0, min_p=0.5, seed=1), self.logits(), 200)
        assert set(tokens.tolist()) == {17, 2048}  # e^-0.5 = 0.61 of the likeliest; e^-1 = 0.37 is not

    def test_draws_follow_the_softmax(self) -> None:
        logits = np.full(self.VOCABULARY, -40.0, np.float32)
        logits[[3, 700, 4100]] = np.log([0.5, 0.3, 0.2])
        tokens = self.draws(Sampling(temperature=1.0, seed=5), logits)
        shares = [np.mean(tokens == token) for token in (3, 700, 4100)]
        np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.08)

    def test_temperature_sharpens(self) -> None:
        logits = np.full(self.VOCABULARY, -40.0, np.float32)
        logits[[3, 700]] = [1.0, 0.0]
        tokens = self.draws(Sampling(temperature=0.5, seed=5), logits)
        assert np.mean(tokens == 3) == pytest.approx(1 / (1 + np.exp(-2)), abs=0.06)

    def test_seeds_repeat_and_differ(self) -> None:
        flat = np.zeros(self.VOCABULARY, np.float32)
        first = self.draws(Sampling(temperature=1.0, seed=1), flat, 20)
        again = self.draws(Sampling(temperature=1.0, seed=1), flat, 20)
        other = self.draws(Sampling(temperature=1.0, seed=2), flat, 20)
        assert first.tolist() == again.tolist()
        assert first.tolist() != other.tolist()
        assert len(set(first.tolist())) > 15

    @pytest.mark.parametrize(
        "wrong",
        [
            {"temperature": -1},
            {"top_k": -1},
            {"top_p": 0},
            {"min_p": 2},
            {"repetition_penalty": 0},
            {"seed": -1},
        ],
    )
    def test_settings_that_make_no_sense(self, wrong: dict[str, float]) -> None:
        with pytest.raises(pteron.InputError):
            Sampling(**wrong)  # type: ignore[arg-type]
