"""Ctrl-C wherever Python heeds it, in a generation, a reset or a close: what comes next is right.

And whatever was held is given back: another thread gets its answer too.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from byte_tokenizer import ByteTokenizer
from interruption import InterruptedAt

import pteron
from pteron import Device
from pteron.llm import LLM, Sampling

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
SOURCES = str(Path(pteron.__file__).parent)
A = [1, *range(40, 80)]
B = [*A[:20], 200, 90, 17, 111, 5]
COUNT = 5
SEEDED = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5)


@pytest.fixture
def llm(device: Device) -> Iterator[LLM]:
    with LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device) as made:
        yield made


def tokens(
    llm: LLM, ids: list[int], resident: bool | None = None, sampling: Sampling | None = None
) -> list[int]:
    stream = llm.generate(ids, max_new_tokens=COUNT, stop_ids=(), resident=resident, sampling=sampling)
    return [piece.token for piece in stream][:COUNT]


def in_another_thread(work: Callable[[], list[int]]) -> list[int]:
    """What some work gives there; nothing where it does not end."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(work()), daemon=True)
    thread.start()
    thread.join(60)
    return found


@pytest.mark.parametrize(
    ("resident", "sampling"),
    [(None, None), (False, None), (None, SEEDED)],
    ids=["resident", "steps", "seeded"],
)
def test_a_generation(llm: LLM, resident: bool | None, sampling: Sampling | None) -> None:
    expected = []
    for ids in (A, B):
        llm.reset()
        expected.append(tokens(llm, ids, resident, sampling))
    point, wrong = 1, []
    while True:
        llm.reset()
        interruption = InterruptedAt(point, SOURCES)
        with suppress(KeyboardInterrupt), interruption:
            tokens(llm, A, resident, sampling)
        if not interruption.is_reached:
            break
        if [tokens(llm, ids, resident, sampling) for ids in (A, B)] != expected:
            wrong.append(point)
        if point % 5 == 0 and in_another_thread(lambda: tokens(llm, B, resident, sampling)) != expected[1]:
            wrong.append(point)
        point += 97
    assert interruption.passed > 1000
    assert not wrong


def test_a_reset(llm: LLM) -> None:
    """Of a model with sequences in use, idle ones and such that come to an end."""
    expected = [tokens(llm, ids) for ids in (A, B)]
    point = 1
    while True:
        streams = [llm.generate(A, max_new_tokens=COUNT, stop_ids=()) for _ in range(3)]
        starts = [next(stream).token for stream in streams]
        streams[1].close()
        interruption = InterruptedAt(point, SOURCES)
        with suppress(KeyboardInterrupt), interruption:
            llm.reset()
        for at in (0, 2):
            rest = [piece.token for piece in streams[at]]
            assert [starts[at], *rest][:COUNT] == expected[0], point
        assert [tokens(llm, ids) for ids in (A, B)] == expected, point
        if not interruption.is_reached:
            break
        point += 4
    assert interruption.passed > 20


def test_a_close(device: Device) -> None:
    """It can be closed again, and then nothing of its own is left; until then it answers rightly or not at
    all. Weights are the device's."""

    def in_use() -> int:
        gc.collect()
        return device.buffer_bytes - sum(int(upload.buffer.size) for upload in device.uploads.values())

    before = in_use()
    with LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device) as fresh:
        expected = tokens(fresh, A)
    point = 1
    while True:
        llm = LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device)
        streams = [llm.generate(A, max_new_tokens=COUNT, stop_ids=()) for _ in range(2)]
        for stream in streams:
            next(stream)
        interruption = InterruptedAt(point, SOURCES)
        with suppress(KeyboardInterrupt), interruption:
            llm.close()
        with suppress(pteron.DeviceError):
            assert tokens(llm, A) == expected, point
        llm.close()
        with pytest.raises(pteron.DeviceError, match="closed"):
            tokens(llm, A)
        for stream in streams:
            stream.close()
        del llm, stream, streams
        assert in_use() <= before, point
        if not interruption.is_reached:
            break
        point += 1 + point // 4
    assert interruption.passed > 50
