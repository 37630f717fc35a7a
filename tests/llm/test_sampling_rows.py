"""Rows of several sequences in one launch: each draws the same token as its own sampler would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pteron.dtypes import DType, Storage
from pteron.gpu import Device, submit
from pteron.host.tensors import View
from pteron.llm import Drawn, Sampler, Sampling
from pteron.llm.sampling.batch_sampler import BatchSampler

pytestmark = pytest.mark.usefixtures("on_route")
Array = npt.NDArray[Any]
SLOTS = 7
TEXTS = [
    Sampling(),
    Sampling(0.8, seed=3),
    Sampling(1.5, top_k=9, seed=4),
    Sampling(1.2, top_p=0.7, min_p=0.01, seed=5),
    Sampling(0.9, 40, 0.9, 0.02, 1.3, 6, 0.5, 0.25, {1: 3.0, 5: -100}, 4),
    Sampling(presence_penalty=1.0, frequency_penalty=0.5, top_logprobs=20),
]
PROMPTS = [(1, 2, 3), (4,), (5, 6), (7, 8, 9, 10), (1, 1, 5, 12), (2, 30)]


class Bench:
    """Sequences that sample from given logits, batched and each alone."""

    def __init__(self, device: Device, vocabulary: int, dtype: DType = DType.F32) -> None:
        self.device, self.vocabulary, self.dtype = device, vocabulary, dtype
        self.storage = device.target.storage(dtype)
        self.rows = BatchSampler(device, vocabulary, SLOTS, dtype)
        self.tokens = device.create_buffer(4 * SLOTS, "tokens")
        self.positions = device.create_buffer(4 * SLOTS, "positions")
        self.chosen = device.create_buffer(4 * SLOTS, "slots")
        self.logits = device.create_buffer(SLOTS * vocabulary * self.storage.itemsize + 4, "logits")
        self.samplers: dict[int, Sampler] = {}
        self.steps: dict[int, int] = {}
        self.prompts: dict[int, tuple[int, ...]] = {}

    def begin(self, slot: int, sampling: Sampling, prompt: tuple[int, ...], masked: bool = False) -> None:
        before = self.samplers.pop(slot, None)
        if before:
            before.close()
        sampler = Sampler(self.device, self.vocabulary, sampling, self.dtype, masked=masked)
        sampler.remember(prompt)
        self.samplers[slot], self.steps[slot], self.prompts[slot] = sampler, 0, prompt
        position = np.array([len(prompt) - 1], np.int32)
        self.device.write(self.positions, position, 4 * slot)
        with self.device.lock:
            submit(self.device, self.rows.begin(slot, sampler, len(prompt)))

    def together(self, slots: list[int], logits: Array, count: int = 1) -> dict[int, list[Drawn]]:
        """Draws of the rows from constant logits over several steps, in one submission."""
        stored = logits.astype(self.storage.numpy)
        self.device.write(self.logits, stored)
        self.device.write(self.chosen, np.array(slots, np.int32))
        view = View(self.logits, 0, logits.shape, self.dtype, self.storage)
        chosen = View(self.chosen, 0, (len(slots),), DType.I32, Storage.I32)
        with self.device.lock:
            drawing = self.rows.drawing(view, chosen, slots, self.tokens, self.positions)
            submit(self.device, [drawing.replay] * count)
        data = self.device.read(drawing.drawn, drawing.size)
        held = np.frombuffer(self.device.read(self.tokens, 4 * SLOTS), np.int32)
        found: dict[int, list[Drawn]] = {}
        for slot in slots:
            if slot < 0:
                continue
            first = len(self.prompts[slot]) - 1 + self.steps[slot]
            tops = self.samplers[slot].sampling.top_logprobs
            found[slot] = [drawing.read(data, slot, at, tops) for at in range(first, first + count)]
            assert held[slot] == found[slot][-1].token
        return found

    def alone(self, slot: int, logits: Array, count: int = 1) -> list[Drawn]:
        sampler, found = self.samplers[slot], []
        for step in range(self.steps[slot], self.steps[slot] + count):
            sampler.draw(logits, step)
            data = self.device.read(sampler.drawn, sampler.drawn_bytes)
            found.append(sampler.read(data, step))
        self.steps[slot] += count
        return found

    def check(self, slots: list[int], logits: Array, count: int = 1) -> None:
        together = self.together(slots, logits, count)
        for row, slot in enumerate(slots):
            if slot >= 0:
                compare(together[slot], self.alone(slot, logits[row], count))

    def close(self) -> None:
        self.rows.close()
        for sampler in self.samplers.values():
            sampler.close()


def compare(found: list[Drawn], expected: list[Drawn]) -> None:
    assert [step.token for step in found] == [step.token for step in expected]
    assert [[token for token, _ in step.top] for step in found] == [
        [token for token, _ in step.top] for step in expected
    ]
    np.testing.assert_allclose(
        [step.logprob for step in found], [step.logprob for step in expected], atol=1e-5
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose([v for _, v in one.top], [v for _, v in other.top], atol=1e-5)


def spread(rows: int, size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 3, (rows, size)).astype(np.float32)


@pytest.fixture(params=[31, 257, 4099])
def bench(request: pytest.FixtureRequest, device: Device) -> Iterator[Bench]:
    made = Bench(device, request.param)
    yield made
    made.close()


@pytest.mark.long(every=4)
def test_rows_of_all_settings_at_once(bench: Bench) -> None:
    slots = [4, 0, 2, 5, 1, 3]
    for slot, (sampling, prompt) in enumerate(zip(TEXTS, PROMPTS, strict=True)):
        bench.begin(slot, sampling, prompt)
    for step in range(3):
        bench.check(slots, spread(6, bench.vocabulary, step))
    bench.check(slots, spread(6, bench.vocabulary, 9), count=12)  # without the host in between


@pytest.mark.long(every=3)
def test_texts_come_and_go(bench: Bench) -> None:
    """Slots are reused: nothing of the previous sequence is left in them."""
    random = np.random.default_rng(bench.vocabulary)
    for turn in range(6):
        for slot in random.permutation(SLOTS)[: 7 if turn == 0 else 3]:
            which = int(random.integers(len(TEXTS)))
            bench.begin(int(slot), TEXTS[which], PROMPTS[which])
        slots = [int(slot) for slot in random.permutation(SLOTS)[: random.integers(1, SLOTS + 1)]]
        bench.check(slots, spread(len(slots), bench.vocabulary, turn), count=1 + turn % 3)


def test_rows_without_a_sequence(bench: Bench) -> None:
    for slot in range(3):
        bench.begin(slot, TEXTS[5 - slot], PROMPTS[5 - slot])
    before = bench.together([0], spread(1, bench.vocabulary))[0]
    bench.alone(0, spread(1, bench.vocabulary)[0])
    bench.check([-1, 2, -1, 1], spread(4, bench.vocabulary, 1), count=2)
    data = bench.device.read(bench.tokens, 4)
    assert np.frombuffer(data, np.int32)[0] == before[0].token


def test_masks(bench: Bench) -> None:
    random = np.random.default_rng(1)
    for slot in range(4):
        bench.begin(slot, TEXTS[slot], PROMPTS[slot], masked=slot % 2 == 0)
    for turn in range(3):
        for slot in (0, 2):
            words = random.integers(0, 1 << 32, -(-bench.vocabulary // 32), dtype=np.uint32)
            bench.rows.allow(slot, words)
            bench.samplers[slot].allow(words)
        bench.check([3, 2, 1, 0], spread(4, bench.vocabulary, turn))


def test_half_floats(device: Device) -> None:
    bench = Bench(device, 2050, DType.F16)
    for slot, (sampling, prompt) in enumerate(zip(TEXTS, PROMPTS, strict=True)):
        bench.begin(slot, sampling, prompt)
    bench.check([5, 4, 3, 2, 1, 0], spread(6, 2050).astype(np.float16), count=3)
    bench.close()


@pytest.mark.parametrize("odd", [np.nan, -np.inf, np.inf])
def test_logits_that_are_no_numbers(odd: float, device: Device) -> None:
    bench = Bench(device, 300)
    for slot, (sampling, prompt) in enumerate(zip(TEXTS, PROMPTS, strict=True)):
        bench.begin(slot, sampling, prompt)
    logits = spread(6, 300)
    logits[:, 7::5] = odd
    together = bench.together([0, 1, 2, 3, 4, 5], logits)
    for slot in range(6):
        (expected,), (found,) = bench.alone(slot, logits[slot]), together[slot]
        assert found.token == expected.token
        assert np.isnan(found.logprob) == np.isnan(expected.logprob)
    bench.close()


def test_other_numbers_compile_nothing(device: Device) -> None:
    bench = Bench(device, 300)
    kernels: list[int] = []
    for seed in range(5):
        for slot in range(3):
            sampling = Sampling(
                0.5 + seed / 3, 3 + seed, 0.5 + seed / 10, 0.01 * seed, 1.1 + slot, seed, 0.1 * seed
            )
            bench.begin(slot, replace(sampling, frequency_penalty=0.3 + slot), (1, 2, seed))
        bench.check([2, 0, 1], spread(3, 300, seed), count=2)
        kernels.append(device.compiled)
    assert set(kernels) == {kernels[0]}
    assert len(bench.rows._sessions) == 1
    bench.close()
