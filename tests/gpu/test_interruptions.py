"""Ctrl-C during a load, a call or parallel work raises KeyboardInterrupt; the next call works, or raises
StateLost until `reset`."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from golden import read_cases
from interruption import is_interrupted, moments

import pteron
from pteron import Device, StateLost
from pteron.gpu.worker_pool import gc_paused, interrupts_deferred, run_in_parallel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses a timer signal")


@pytest.fixture(autouse=True)
def _gc_stays_enabled() -> Iterator[None]:
    yield
    assert gc.isenabled()


def test_parallel_tasks() -> None:
    """After an interrupt no thread is running a task."""
    running, done = set[int](), list[int]()

    def task(number: int) -> None:
        running.add(number)
        time.sleep(0.002)
        done.append(number)
        running.discard(number)

    def work() -> None:
        tasks = [lambda number=number: task(number) for number in range(9)]
        run_in_parallel(tasks, 3, lambda: run_in_parallel([lambda: task(100)], 1))

    interrupted = 0
    for seconds in (
        *moments(work),
        0.001,
        0.002,
        0.003,
    ):  # for a machine that was busy at first
        running.clear()
        interrupted += is_interrupted(work, seconds)
        assert len(running) <= 1  # the one that was interrupted on this thread
        before = len(done)
        time.sleep(0.005)
        assert len(done) == before
    assert interrupted
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pteron-worker")]


def test_an_error_ends_parallel_tasks() -> None:
    done = list[int]()

    def failing() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        run_in_parallel([failing, *[lambda: done.append(1)] * 3], 1, lambda: time.sleep(0.05))
    assert not done
    with pytest.raises(ValueError, match="meanwhile"):
        run_in_parallel([lambda: done.append(1)], 1, lambda: int("meanwhile"))  # type: ignore[arg-type]


def test_few_threads_run_all_tasks() -> None:
    done = list[int]()
    run_in_parallel([lambda number=number: done.append(number) for number in range(100)], 2)  # type: ignore[misc]
    assert sorted(done) == [*range(100)]
    run_in_parallel([], 4)


def test_the_collector_is_left_as_it_was() -> None:
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "another thread is inside such a block"
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_deferred_interrupt() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    steps = []
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117  # at the end of the inner block
            with interrupts_deferred():
                signal.raise_signal(signal.SIGINT)
                steps.append("the step ends")
        assert steps
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_load(models: Path, device: Device) -> None:
    """Nothing stays on the device once the program is closed, and a second attempt works."""
    path = models / "tiny_llama_q4.pte"

    def load() -> None:
        with pteron.load(path, device=device) as program:
            program["forward"]

    gc.collect()
    before = device.buffer_bytes, len(device.uploads)
    interrupted = 0
    for seconds in moments(load, 3):
        with pteron.load(path, device=device) as program:
            interrupted += is_interrupted(lambda program=program: program["forward"], seconds)  # type: ignore[misc]
            assert program["forward"]
        del program
        gc.collect()
        assert (device.buffer_bytes, len(device.uploads)) == before
    assert interrupted


@pytest.mark.long(every=2)
@pytest.mark.usefixtures("encoding")
@pytest.mark.parametrize(
    "name", ["mlp", "mutable_buffer", "mutable_buffer_written", "mutable_buffer_host", "two_delegates"]
)
def test_calls(name: str, programs: Path) -> None:
    (case, *_) = read_cases(programs / f"{name}.npz")
    with pteron.load(programs / f"{name}.pte") as program:
        method = program[case.method]
        expected = method(*case.inputs)

        def calls() -> None:
            for _ in range(5):
                method(*case.inputs)

        interrupted = 0
        for seconds in moments(calls):
            interrupted += is_interrupted(calls, seconds)
            try:
                method(*case.inputs)
            except StateLost:
                assert name.startswith("mutable")
            method.reset()
            for found, right in zip(method(*case.inputs), expected, strict=True):
                np.testing.assert_array_equal(found, right)
        assert interrupted
