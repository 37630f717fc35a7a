"""Threads that whoever holds a device's lock works with, and waits for."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_changing = threading.Lock()
_pauses: set[object] = set()
_was_enabled = False


@contextmanager
def working(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """As many threads; all that was given to them is done at the end.

    Python's garbage collector stands still meanwhile. It ends objects on whatever thread it happens to run,
    here on one that the holder of the lock waits for; and an object that needs the lock to end, a stream or a
    program, would wait there for ever.
    """
    with collecting_nothing(), ThreadPoolExecutor(count, name) as threads:
        yield threads


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """The collector stands still within. An interruption at any line up to the end leaves it as it was."""
    global _was_enabled
    pause = object()
    try:
        with _changing:
            if not _pauses:
                _was_enabled = gc.isenabled()
            _pauses.add(pause)
            gc.disable()
        yield
    finally:
        with _changing:
            if _pauses <= {pause} and _was_enabled:
                gc.enable()  # first, so that an interruption before the next line does no harm
            _pauses.discard(pause)
