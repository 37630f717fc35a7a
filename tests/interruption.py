"""A signal at a chosen moment: a timer raises KeyboardInterrupt, or calls a function, on the main thread."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Self


class SignalAfter:
    """A context manager that calls a function, as a signal handler, after some seconds; without a function it
    sends SIGINT, as Ctrl-C does."""

    def __init__(self, seconds: float, function: Callable[[], object] | None = None) -> None:
        self._seconds = max(seconds, 1e-6)
        self._function = function
        self.is_called = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._handle)
        self._sigint = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        signal.signal(signal.SIGINT, self._sigint)

    def _handle(self, _number: int, _frame: object) -> None:
        self.is_called = True
        if self._function is None:
            signal.raise_signal(signal.SIGINT)
        else:
            self._function()


def moments(work: Callable[[], object], count: int = 20) -> list[float]:
    """Random moments, in seconds, of some work, which runs twice to measure it warm."""
    work()
    begun = time.perf_counter()
    work()
    duration = time.perf_counter() - begun
    choices = random.Random(count)
    return [choices.uniform(0, duration) for _ in range(count)]


def is_interrupted(work: Callable[[], object], seconds: float) -> bool:
    """Run some work with KeyboardInterrupt after some seconds; whether it was raised."""
    try:
        with SignalAfter(seconds):
            work()
    except KeyboardInterrupt:
        return True
    return False
