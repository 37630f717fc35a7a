"""Models closed or collected with finished, open or unstarted streams leak no memory; see also tests/soak."""

from __future__ import annotations

import gc
from collections.abc import Callable

from byte_tokenizer import ByteTokenizer
from leaks import GROWTH_MAX, held, host_bytes, needs_proc
from llm_fixtures import TINY

from pteron import Device
from pteron.llm import LLM

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
