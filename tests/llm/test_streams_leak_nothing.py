"""Hundreds of streams and models, read, closed, abandoned or failed, leak no memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from faulty import Faults
from leaks import GROWTH_MAX, held, host_bytes, needs_proc
from llm_fixtures import TINY

from pteron import Device, DeviceError
from pteron.llm import LLM, Sampling

PROMPTS = ([1, *range(40, 80)], [5, 17, 99, 250, 3], [9])


def grows(device: Device, rounds: int, each: Callable[[int], None]) -> int:
    """Call `each` for `rounds` rounds. Returns the growth of host memory in the second half, in bytes. Checks
    that the device's resources do not grow there."""
    for number in range(rounds // 2):
        each(number)
    before, in_use = held(device), host_bytes()
    for number in range(rounds // 2, rounds):
        each(number)
        if number % (rounds // 4) == 0:
            assert held(device) == before
    assert held(device) == before
    return host_bytes() - in_use


def sampling(number: int) -> Sampling:
    """One of three settings, and many seeds."""
    return Sampling(temperature=0.5 * (number % 3), seed=number)


@pytest.mark.long
@needs_proc
def test_streams(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(monkeypatch)
    with LLM(TINY, ByteTokenizer(), device=device) as llm:

        def one(number: int) -> None:
            asked: dict[str, Any] = {"max_new_tokens": 4, "stop_ids": (), "sampling": sampling(number)}
            stream = llm.generate(PROMPTS[number % 3], **asked)
            match number % 6:
                case 0:
                    list(stream)
                case 1:
                    next(stream)
                    stream.close()
                case 2:
                    next(stream)  # the rest is never read
                case 3:
                    next(stream)
                    cycle: list[Any] = [stream]
                    cycle.append(cycle)
                case 4:
                    faults.arm("submit", 1, after=True)
                    with pytest.raises(DeviceError):
                        list(stream)
                case 5:
                    beside = llm.generate(PROMPTS[0], **asked)
                    next(stream)
                    list(beside)
                    list(stream)
            if number % 30 == 29:
                del stream
                gc.collect()
                llm.reset()

        assert grows(device, 360, one) < GROWTH_MAX


@needs_proc
def test_models(device: Device) -> None:
    """Models closed with finished, open or unstarted streams, or garbage-collected."""

    def one(number: int) -> None:
        llm = LLM(TINY, ByteTokenizer(), device=device)
        streams = [llm.generate(ids, max_new_tokens=3, stop_ids=()) for ids in PROMPTS]
        for stream in streams[: number % 3]:
            next(stream)
        if number % 4:
            llm.close()
            streams[0].close()
        else:
            gc.collect()

    assert grows(device, 24, one) < GROWTH_MAX
