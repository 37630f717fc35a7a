"""Ctrl-C at any point of work that threads share: none goes on, and nothing is left on the device."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from failing import Interruption

import pteron
from pteron import Device
from pteron.gpu import buffers, memory, open_device, worker_pool
from pteron.gpu import device as device_module
from pteron.gpu.worker_pool import together


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    assert gc.isenabled()
    assert not worker_pool._pauses


def interrupted_together(at: int, with_meanwhile: bool) -> bool:
    """Share work that is interrupted at a point; whether the point was reached."""
    running, done = set[int](), list[int]()

    def task(number: int) -> None:
        running.add(number)
        time.sleep(0.0005)
        done.append(number)
        running.remove(number)

    def meanwhile() -> None:
        together([lambda: task(100)], 1)

    interruption = Interruption(at, worker_pool.__file__)
    tasks = [lambda number=number: task(number) for number in range(5)]
    try:
        with interruption:
            together(tasks, 3, meanwhile if with_meanwhile else None)
    except KeyboardInterrupt:
        # A task that this very thread had begun is the one that was interrupted.
        assert len(running) <= 1
        before = len(done)
        time.sleep(0.002)
        assert len(done) == before
    assert gc.isenabled()
    assert not worker_pool._pauses
    return interruption.left <= 0


@pytest.mark.parametrize("with_meanwhile", [False, True])
def test_work_ends_wherever_it_is_interrupted(with_meanwhile: bool) -> None:
    at = 1
    while interrupted_together(at, with_meanwhile):
        at += 1
    assert at > 50


def test_an_error_ends_the_work() -> None:
    done = list[int]()

    def failing() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        together([failing, *[lambda: done.append(1)] * 3], 1, lambda: time.sleep(0.05))
    assert not done
    with pytest.raises(ValueError, match="meanwhile"):
        together([lambda: done.append(1)], 1, lambda: int("meanwhile"))  # type: ignore[arg-type]


def test_all_tasks_are_done_by_few_threads() -> None:
    done = list[int]()
    together([lambda number=number: done.append(number) for number in range(100)], 2)  # type: ignore[misc]
    assert sorted(done) == [*range(100)]
    together([], 4)


@pytest.mark.parametrize("step", range(2))
def test_a_load_that_is_interrupted_leaves_nothing(step: int, models: Path, device: Device) -> None:
    """At some fifty points of uploading and compiling."""
    gc.collect()
    before = device.buffer_bytes, len(device.uploads)
    modules = memory, worker_pool, device_module, buffers, open_device
    files = [str(module.__file__) for module in modules]
    at, is_reached = 1 + 5 * step, True
    while is_reached:
        interruption = Interruption(at, *files)
        with pteron.load(models / "tiny_llama_q4.pte", device=device) as program:
            with suppress(KeyboardInterrupt), interruption:
                program["forward"]
            assert all(upload.users for upload in device.uploads.values())
            if step == 0:
                assert program["forward"]
        gc.collect()
        assert (device.buffer_bytes, len(device.uploads)) == before
        is_reached = interruption.left <= 0
        at += 1 + at // 6
    assert at > 300
