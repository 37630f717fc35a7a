"""Hundreds of requests, read, cancelled, dropped or failed, leak no memory and no threads."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from engine_fixtures import PATIENCE, SHORT, A, B, asked
from faulty import Faults

from pteron import Device, DeviceError
from pteron.gpu import readback
from pteron.llm import LLM, Sampling
from pteron.llm.engine.answer import Notifier
from pteron.serving import Engine

GROWTH_MAX = 3 << 20  # bytes of host memory: what the allocator may keep
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ROUNDS = 20  # of eight requests each
STRETCHES = 6  # of rounds; one without growth is enough: a leak grows in each


def host_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held(device: Device) -> dict[str, int]:
    """Counts of what the device and the package hold."""
    gc.collect()
    return {
        "buffers": len(device._buffers),
        "bytes": device.buffer_bytes,
        "uploads": len(device.uploads),
        "users": sum(len(upload.users) for upload in device.uploads.values()),
        "pipelines": len(device._pipelines),
        "maps": len(readback._pending) + len(readback._finished),
    }


def engine_threads() -> int:
    return sum(thread.name == "pteron engine" for thread in threading.enumerate())


def rest(engine: Engine) -> None:
    """Wait until all requests have ended, including those without a reader."""
    until = time.monotonic() + PATIENCE
    while engine.queue.open or engine.scheduler.in_flight:
        assert time.monotonic() < until
        time.sleep(0.001)


def one_round(engine: Engine, faults: Faults, number: int) -> None:
    answers = [
        engine.submit(asked(ids, 4, sampling=Sampling(temperature=0.5 * (at % 3), seed=number)))
        for at, ids in enumerate((A, B, SHORT, A, B, SHORT, A, B))
    ]
    answers[0].cancel()
    next(iter(answers[1]), None)
    answers[1].cancel()
    del answers[2]
    if number % 4 == 0:
        faults.arm("submit", 1, after=True)
        faults._thread = engine.thread
    for answer in answers:
        with suppress(DeviceError):
            answer.pieces()
    faults.disarm()


@pytest.mark.long
@needs_proc
def test_hundreds_of_requests(tiny_llm: LLM, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(monkeypatch)
    threads = engine_threads()
    with Engine(tiny_llm, running=4) as engine:
        before: dict[str, int] = {}
        rounds = 0
        for _ in range(STRETCHES):  # the early ones allocate lazy caches
            in_use = host_bytes()
            rounds += 1
            for number in range(ROUNDS):
                one_round(engine, faults, number)
            rest(engine)
            after = held(device)
            if after == before:
                break
            before = after
        assert after == before
        assert host_bytes() - in_use < GROWTH_MAX
        assert engine_threads() == threads + 1
        load = engine.load
        assert load.requests == 8 * ROUNDS * rounds
        assert load.cancelled > ROUNDS * rounds
        assert load.failed > 0
    assert engine_threads() == threads


def test_many_engines(tiny_llm: LLM, device: Device) -> None:
    """Engines that are closed with open answers, drained, or garbage-collected."""
    threads = engine_threads()

    def one(number: int) -> None:
        engine = Engine(tiny_llm)
        answers = [engine.submit(asked(ids, 20)) for ids in (A, B)]
        if number % 3 == 0:
            engine.close()
        elif number % 3 == 1:
            engine.drain()
            engine.close()
        thread = engine.thread
        del engine, answers
        thread.join(PATIENCE)
        assert not thread.is_alive()

    for number in range(3):
        one(number)
    before = held(device)
    for number in range(6):
        one(number)
    assert held(device) == before
    assert engine_threads() == threads


def test_waits_that_are_over_are_forgotten() -> None:
    notifier = Notifier()

    def futures() -> int:
        gc.collect()
        return sum(type(each) is asyncio.Future for each in gc.get_objects())

    async def wait() -> None:
        is_true = iter((False, False, True)).__next__
        waiting = asyncio.ensure_future(notifier.wait_async(is_true))
        while not waiting.done():
            notifier.notify()
            await asyncio.sleep(0)

    before = futures()
    for _ in range(5):
        asyncio.run(wait())
    assert futures() == before
