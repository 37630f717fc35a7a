"""Penalties by count, biases, bans, masks and lists of the likeliest, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.gpu import Device
from pteron.llm import Drawn, Sampler, Sampling
from pteron.llm.sampling import RING
from pteron.llm.sampling.graphs import DRAWN, MASK
from pteron.llm.sampling.sampler import SESSIONS_MAX, SamplerSessions
from pteron.ops.operand import State

pytestmark = pytest.mark.usefixtures("on_route")
Array = npt.NDArray[Any]
SIZES = (1, 31, 257, 4099)


def drawn(
    device: Device,
    logits: Array,
    sampling: Sampling,
    count: int,
    prompt: tuple[int, ...] = (),
    mask: Array | None = None,
) -> list[Drawn]:
    """Draws from the same logits, one after the other."""
    sampler = Sampler(device, logits.size, sampling, masked=mask is not None)
    sampler.remember(prompt)
    if mask is not None:
        sampler.allow(packed(mask))
    found = draws_of(device, sampler, logits, count)
    sampler.close()
    return found


def draws_of(device: Device, sampler: Sampler, logits: Array, count: int) -> list[Drawn]:
    found: list[Drawn] = []
    while len(found) < count:
        steps = range(len(found), min(len(found) + RING, count))
        for step in steps:
            sampler.draw(logits, step)
        data = device.read(sampler.drawn, sampler.drawn_bytes)
        found += [sampler.read(data, step) for step in steps]
    return found


def packed(allowed: Array) -> npt.NDArray[np.uint32]:
    padded = np.zeros(-(-allowed.size // 32) * 32, np.uint8)
    padded[: allowed.size] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)


def spread(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)


def changed(
    logits: Array, sampling: Sampling, prompt: tuple[int, ...], before: list[int], mask: Array | None = None
) -> Array:
    """The logits after all settings are applied, in float64."""
    values = logits.astype(np.float64)
    for token, bias in sampling.biases:
        values[token] += -np.inf if bias <= -100 else bias
    seen = np.isin(np.arange(values.size), [*prompt, *before])
    penalty = sampling.repetition_penalty
    values = np.where(seen, np.where(values < 0, values * penalty, values / penalty), values)
    times = np.bincount(np.array(before, np.int64), minlength=values.size)
    values = values - sampling.presence_penalty * (times > 0) - sampling.frequency_penalty * times
    return values if mask is None else np.where(mask, values, -np.inf)


def logprobs(logits: Array) -> Array:
    values = logits.astype(np.float64)
    most = values[np.isfinite(values)].max()
    return np.asarray(values - most - np.log(np.exp(values - most).sum()))


SETTINGS = [
    Sampling(presence_penalty=1.5),
    Sampling(frequency_penalty=0.7),
    Sampling(presence_penalty=-0.5, frequency_penalty=0.9),
    Sampling(presence_penalty=0.6, frequency_penalty=0.3, repetition_penalty=1.3),
    Sampling(logit_bias={0: 4.0, 7: -2.5, 30: 100.0}),
    Sampling(logit_bias={3: -100.0, 30: 2.0}, frequency_penalty=1.1, repetition_penalty=0.8),
]


class TestGreedy:
    @pytest.mark.parametrize("size", SIZES[1:])
    @pytest.mark.parametrize("sampling", SETTINGS, ids=str)
    def test_the_greatest_after_all_changes(self, sampling: Sampling, size: int, device: Device) -> None:
        logits, prompt = spread(size), (1, 5, size - 1, 5)
        logits[7] = logits.max() + 1
        before: list[int] = []
        for step in drawn(device, logits, sampling, 24, prompt):
            values = changed(logits, sampling, prompt, before)
            assert values[step.token] >= values.max() - 1e-4
            assert step.logprob == pytest.approx(logprobs(logits)[step.token], abs=1e-4)
            before.append(step.token)
        assert len(set(before)) > 1 or not (sampling.presence_penalty or sampling.frequency_penalty)

    @pytest.mark.parametrize("repetition_penalty", [1.0, 1.1])
    def test_the_prompt_is_not_counted(self, repetition_penalty: float, device: Device) -> None:
        """By the presence penalty, also where the repetition penalty notes the prompt's tokens."""
        logits = np.array([5.0, 4.0, 0.0], np.float32)
        sampling = Sampling(presence_penalty=2.0, repetition_penalty=repetition_penalty)
        found = drawn(device, logits, sampling, 2, prompt=(0, 0, 0))
        assert [step.token for step in found] == [0, 1]

    @pytest.mark.parametrize("kept", [{"top_k": 2}, {"top_p": 0.6}], ids=str)
    def test_a_token_that_was_drawn_once_leaves_the_most_probable(
        self, kept: dict[str, Any], device: Device
    ) -> None:
        """By the repetition penalty alone, so that the next one moves up."""
        logits = np.full(40, -50, np.float32)
        logits[:3] = 30.0, 29.98, 29.96
        second = set()
        for seed in range(12):
            sampling = Sampling(1.0, repetition_penalty=3.0, seed=seed, **kept)
            first, next_ = drawn(device, logits, sampling, 2)
            assert first.token in (0, 1)
            second.add((first.token, next_.token))
        assert second == {(0, 1), (0, 2), (1, 0), (1, 2)}

    def test_remembering_anew_forgets_what_was_drawn(self, device: Device) -> None:
        logits = np.array([5.0, 4.0, 0.0], np.float32)
        sampler = Sampler(device, 3, Sampling(presence_penalty=2.0))
        tokens = []
        for _ in range(2):
            sampler.remember([])
            for step in range(2):
                sampler.draw(logits, step)
                tokens.append(sampler.read(device.read(sampler.drawn, sampler.drawn_bytes), step).token)
        sampler.close()
        assert tokens == [0, 1, 0, 1]

    @pytest.mark.parametrize("size", SIZES)
    def test_bans(self, size: int, device: Device) -> None:
        logits = spread(size)
        logits[:: max(2, size // 9)] = np.inf
        best = np.argsort(-logits, kind="stable")
        left = max(1, size // 3)
        banned = Sampling(logit_bias={int(token): -100 for token in best[:-left]})
        for temperature in (0.0, 1.5):
            found = drawn(device, logits, replace(banned, temperature=temperature), 9)
            assert all(step.token in best[-left:] for step in found)

    @pytest.mark.parametrize("size", SIZES)
    def test_masks(self, size: int, device: Device) -> None:
        logits, random = spread(size), np.random.default_rng(size)
        for allowed in (1, max(1, size // 2), size):
            mask = np.zeros(size, bool)
            mask[random.permutation(size)[:allowed]] = True
            (greedy,) = drawn(device, logits, Sampling(), 1, mask=mask)
            assert greedy.token == np.where(mask, logits, -np.inf).argmax()
            assert greedy.logprob == pytest.approx(logprobs(logits)[greedy.token], abs=1e-4)
            everything = Sampling(2.0, 40, 0.95, 0.001, 1.1, 3, 0.4, 0.2, {0: 1.0}, 2)
            for step in drawn(device, logits, everything, 12, prompt=(0,), mask=mask):
                assert mask[step.token]

    def test_a_short_mask_allows_nothing_beyond_it(self, device: Device) -> None:
        sampler = Sampler(device, 100, Sampling(), masked=True)
        logits = np.arange(100, dtype=np.float32)
        device.write(sampler._states[State(MASK)], np.full(4, 0xFFFFFFFF, np.uint32))
        sampler.allow(np.array([0b1010], np.uint32))
        sampler.draw(logits, 0)
        assert sampler.read(device.read(sampler.drawn, 8 * RING), 0).token == 3
        sampler.allow(np.full(9, 0xFFFFFFFF, np.uint32))
        sampler.draw(logits, 1)
        assert sampler.read(device.read(sampler.drawn, 8 * RING), 1).token == 99
        sampler.close()

    def test_only_a_masked_sampler_takes_a_mask(self, device: Device) -> None:
        sampler = Sampler(device, 100, Sampling())
        with pytest.raises(InputError, match="has no mask"):
            sampler.allow(np.zeros(4, np.uint32))
        sampler.close()


class TestDistribution:
    """Draws by chance follow the softmax of the changed logits."""

    @pytest.mark.parametrize("mask", [None, (True, True, False, True, True, True, False, True)])
    def test_biases_and_masks(self, mask: tuple[bool, ...] | None, device: Device) -> None:
        logits = np.array([1.5, -2, 3, 0.3, -0.7, 0.31, -np.inf, 1], np.float32)
        sampling = Sampling(1.3, seed=5, logit_bias={1: 2.0, 0: -1.5, 4: -100})
        allowed = None if mask is None else np.array(mask)
        tokens = [step.token for step in drawn(device, logits, sampling, 1500, mask=allowed)]
        values = changed(logits, sampling, (), [], allowed)
        weights = np.exp((values - values.max()) / 1.3)
        expected = 1500 * weights / weights.sum()
        counts = np.bincount(tokens, minlength=8)
        there = expected > 0
        assert counts[~there].sum() == 0
        assert ((counts - expected)[there] ** 2 / expected[there]).sum() < 24.3  # 6 degrees, at 0.05 %

    def test_penalties(self, device: Device) -> None:
        """The first draw has no penalty; the second is penalised by the first."""
        logits = np.array([1.0, 0.8, 0.3, -0.2], np.float32)
        sampling = Sampling(1.0, presence_penalty=0.9, frequency_penalty=0.4)
        pairs = np.zeros((4, 4))
        sampler = Sampler(device, 4, sampling)
        for seed in range(1200):
            sampler._numbers = (seed, *sampler._numbers[1:])
            sampler.remember([])
            for step in range(2):
                sampler.draw(logits, step)
            data = device.read(sampler.drawn, sampler.drawn_bytes)
            pairs[sampler.read(data, 0).token, sampler.read(data, 1).token] += 1
        sampler.close()
        first = np.exp(logprobs(logits))
        then = np.array([np.exp(logprobs(changed(logits, sampling, (), [token]))) for token in range(4)])
        expected = 1200 * first[:, None] * then
        assert ((pairs - expected) ** 2 / expected).sum() < 40  # 15 degrees of freedom, at 0.05 %


def tied(size: int) -> Array:
    return np.round(spread(size)).astype(np.float32)


def infinite(size: int) -> Array:
    values = spread(size)
    values[::2] = -np.inf
    return values


def zeros(size: int) -> Array:
    values = np.zeros(size, np.float32)
    values[::3] = -0.0
    return values


class TestLists:
    @pytest.mark.long(every=2)
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("make", [spread, tied, infinite, zeros])
    def test_the_likeliest_in_order(self, make: Any, size: int, device: Device) -> None:
        logits = make(size)
        if not np.isfinite(logits).any():
            logits[0] = 1
        order = [int(token) for token in np.lexsort((np.arange(size), -logits)) if np.isfinite(logits[token])]
        for count, temperature in ((1, 0.0), (5, 1.0), (20, 0.0), (20, 0.7)):
            sampling = Sampling(temperature, 10, 0.9, top_logprobs=count, seed=3)
            for step in drawn(device, logits, sampling, 3):
                assert [token for token, _ in step.top] == order[:count]
                found = [logprob for _, logprob in step.top]
                np.testing.assert_allclose(found, logprobs(logits)[order[:count]], atol=1e-4)
                assert dict(step.top).get(step.token, step.logprob) == pytest.approx(step.logprob, abs=1e-5)

    def test_changes_leave_the_list_alone(self, device: Device) -> None:
        logits = spread(300)
        best = int(logits.argmax())
        sampling = Sampling(logit_bias={best: -100}, frequency_penalty=2.0, top_logprobs=3)
        found = drawn(device, logits, sampling, 4, mask=np.arange(300) % 2 == 0)
        order = np.argsort(-logits)
        assert all([token for token, _ in step.top] == order[:3].tolist() for step in found)
        assert best not in [step.token for step in found]

    def test_a_logit_that_is_no_number(self, device: Device) -> None:
        logits = spread(2500)
        logits[[4, 2400]] = np.nan
        (step,) = drawn(device, logits, Sampling(top_logprobs=20), 1)
        order = [token for token in np.argsort(-logits) if not np.isnan(logits[token])]
        assert [token for token, _ in step.top] == order[:20]
        assert np.isnan([logprob for _, logprob in step.top]).all()
        (step,) = drawn(device, np.full(50, np.nan, np.float32), Sampling(top_logprobs=20), 1)
        assert step.top == ()

    def test_half_floats(self, device: Device) -> None:
        logits = spread(2051).astype(np.float16)
        sampler = Sampler(device, 2051, Sampling(top_logprobs=20, presence_penalty=1.0), DType.F16)
        tokens = []
        for step in range(3):
            sampler.draw(logits, step)
            data = device.read(sampler.drawn, sampler.drawn_bytes)
            tokens.append(sampler.read(data, step).token)
            top = sampler.read(data, step).top
            np.testing.assert_allclose(
                [value for _, value in top], np.sort(logprobs(logits))[:-21:-1], atol=1e-3
            )
        sampler.close()
        before: list[int] = []
        for token in tokens:
            values = changed(logits, Sampling(presence_penalty=1.0), (), before)
            assert values[token] == values.max()
            before.append(token)


class TestSharing:
    """Requests that differ only in numbers share kernels and plans."""

    NUMBERS = (
        Sampling(0.7, 40, 0.9, 0.05, 1.1, 3, 0.5, 0.2, {1: 2.0}, 5),
        Sampling(1.9, 7, 0.5, 0.0, 1.4, 9, -0.5, 1.2, {9: -100, 3: 1.0}, 20),
        Sampling(0.01, 1, 0.99, 1.0, 0.5, 0, 0.0, 0.1, {2: 0.5}, 1),
    )

    def test_other_numbers_compile_nothing(self, device: Device) -> None:
        logits, sessions = spread(4099), SamplerSessions()
        answers = {sampling: drawn(device, logits, sampling, 6) for sampling in self.NUMBERS}
        made: list[tuple[int, int, int]] = []
        for sampling in (*self.NUMBERS, *reversed(self.NUMBERS)):
            sampler = Sampler(device, 4099, sampling, sessions=sessions)
            sampler.remember(())
            assert draws_of(device, sampler, logits, 6) == answers[sampling]
            sampler.close()
            counters = sampler._session.counters
            made.append((len(sessions), device.compiled, counters.plans))
        assert set(made) == {made[0]}
        assert made[0][::2] == (1, 1)

    def test_sessions_are_bounded(self, device: Device) -> None:
        """One more form is served too; the form that was used longest ago is forgotten for it."""
        sessions = SamplerSessions()
        for count in range(1, SESSIONS_MAX + 2):
            Sampler(device, 30 + count, Sampling(), sessions=sessions).close()
            assert len(sessions) == min(count, SESSIONS_MAX)

    def test_streams_side_by_side_keep_their_numbers(self, device: Device) -> None:
        logits = spread(4099)
        alone = [drawn(device, logits, sampling, 8) for sampling in self.NUMBERS]
        samplers = [Sampler(device, 4099, sampling) for sampling in self.NUMBERS]
        for step in range(8):
            for sampler, answers in zip(samplers, alone, strict=True):
                sampler.draw(logits, step)
                data = device.read(sampler.drawn, sampler.drawn_bytes)
                assert sampler.read(data, step) == answers[step]
        for sampler in samplers:
            sampler.close()


class TestStates:
    def test_poison_in_the_ring_is_not_read(self, device: Device) -> None:
        sampler = Sampler(device, 31, Sampling(top_logprobs=20))
        device.write(sampler._states[State(DRAWN)], np.full(2 * 21 * RING, 0x7FC00001, np.uint32))
        sampler.draw(spread(31), RING + 3)
        data = device.read(sampler.drawn, sampler.drawn_bytes)
        last = sampler.read(data, 3)
        assert last.top[0] == (last.token, last.logprob)
        assert len(last.top) == 20
        sampler.close()


class TestGiven:
    def test_biases_are_kept_by_token(self) -> None:
        sampling = Sampling(logit_bias={9: 1, 2: -3.5})
        assert sampling.logit_bias == ((2, -3.5), (9, 1.0))
        assert sampling == Sampling(logit_bias=((9, 1.0), (2, -3.5)))
        assert hash(sampling) == hash(replace(sampling, seed=0))

    def test_a_bias_outside_the_vocabulary(self, device: Device) -> None:
        with pytest.raises(InputError, match="token 31 is outside the vocabulary of 31"):
            Sampler(device, 31, Sampling(logit_bias={31: 1.0}))

    def test_biases_that_ban_every_token(self, device: Device) -> None:
        banned = dict.fromkeys(range(31), -100.0)
        with pytest.raises(InputError, match="logit_bias bans all 31 tokens"):
            Sampler(device, 31, Sampling(logit_bias=banned))
        Sampler(device, 31, Sampling(logit_bias=banned | {30: -99.0})).close()
