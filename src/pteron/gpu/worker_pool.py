"""Runs tasks in parallel threads while the caller holds a device's lock, and defers interrupts to the end of
a block."""

from __future__ import annotations

import gc
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from pteron.gpu.fork import new_lock

Task: TypeAlias = Callable[[], None]

_gc_lock = new_lock()
_gc_pauses = 0  # blocks of `gc_paused` that are running, in any thread
_gc_was_enabled = False


def run_in_parallel(tasks: Iterable[Task], count: int, meanwhile: Task | None = None) -> None:
    """Run tasks in up to `count` threads. This thread runs `meanwhile`, then takes tasks too.

    No thread is running when this returns or raises. After an error or Ctrl-C, tasks that have not started
    are dropped, and the first error is raised. GC is paused: it could run a finalizer on one of these threads
    that waits for the device lock, which the caller holds.
    """
    waiting = deque(tasks)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                task()
        except BaseException as error:
            waiting.clear()
            errors.append(error)

    names = [f"pteron-worker-{index}" for index in range(min(count, len(waiting)))]
    threads = [threading.Thread(target=work, name=name, daemon=True) for name in names]
    with gc_paused():
        try:
            with interrupts_deferred():
                for thread in threads:
                    thread.start()
            if meanwhile:
                meanwhile()
            work()
        finally:
            waiting.clear()  # empty unless something failed
            try:
                _join(threads)
            except KeyboardInterrupt:  # before it was deferred
                _join(threads)
                raise
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # a traceback would otherwise refer to itself


def _join(threads: Iterable[threading.Thread]) -> None:
    """Wait for threads. An interrupted `Thread.join` would count its thread as ended."""
    with interrupts_deferred():
        for thread in threads:
            if thread.is_alive():
                thread.join()


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block instead of inside it. Python runs signal handlers on
    the main thread only; on other threads this does nothing."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[tuple[int, object]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[0])  # type: ignore[arg-type]  # a frame


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, until the last thread leaves such a block."""
    global _gc_pauses, _gc_was_enabled
    with _gc_lock:
        if not _gc_pauses:
            _gc_was_enabled = gc.isenabled()
        _gc_pauses += 1
    try:
        gc.disable()
        yield
    finally:
        with _gc_lock:
            _gc_pauses -= 1
            if not _gc_pauses and _gc_was_enabled:
                gc.enable()
