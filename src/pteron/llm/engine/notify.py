"""Waking those who wait for something to happen, in threads and in event loops.

No lock is held anywhere, so it may be told from a finalizer, and a process that is forked meanwhile finds
none closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic

from pteron.gpu.fork import check_not_forked


class Notifier:
    """Who waits says what for, and looks again whenever there is news.

    They leave word before they look a last time, and whoever tells does so after it has happened: none is
    missed.
    """

    def __init__(self) -> None:
        self._wakers: deque[Callable[[], None]] = deque()

    def tell(self) -> None:
        """Wake all who wait now."""
        while self._wakers:
            try:
                wake = self._wakers.popleft()
            except IndexError:  # another thread tells too
                return
            wake()

    def wait(self, happened: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait on this thread, for `seconds` at most; whether it has happened."""
        until = None if seconds is None else monotonic() + seconds
        bell: SimpleQueue[None] = SimpleQueue()
        wake = partial(bell.put, None)
        while not happened():
            check_not_forked()
            self._wakers.append(wake)
            if not happened() and not _rings(bell, until):
                self._forget(wake)
                break
        return happened()

    async def wait_in_loop(self, happened: Callable[[], bool]) -> None:
        """Wait in an event loop, whose other work goes on."""
        loop = asyncio.get_running_loop()
        while not happened():
            check_not_forked()
            future: asyncio.Future[None] = loop.create_future()
            wake = partial(_wake, loop, future)
            self._wakers.append(wake)
            if happened():
                return
            try:
                await future
            except BaseException:  # the task was cancelled
                self._forget(wake)
                raise

    def _forget(self, wake: Callable[[], None]) -> None:
        with suppress(ValueError, IndexError):  # it was taken meanwhile, or another was
            self._wakers.remove(wake)


def _rings(bell: SimpleQueue[None], until: float | None) -> bool:
    """Whether a bell rings before a time."""
    try:
        bell.get(timeout=None if until is None else max(0.0, until - monotonic()))
    except Empty:
        return False
    return True


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits in it
        loop.call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
