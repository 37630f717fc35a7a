"""Notifier: wakes threads and event-loop tasks that wait for a condition.

It takes no lock, so a finalizer may notify, and a forked child inherits no held lock.
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
    """Waiters check their condition again at every notification.

    A waiter registers before its last check, and `notify` is called after the condition became true: no
    wake-up is lost.
    """

    def __init__(self) -> None:
        self._wakers: deque[Callable[[], None]] = deque()

    def notify(self) -> None:
        """Wake all current waiters."""
        while self._wakers:
            try:
                wake = self._wakers.popleft()
            except IndexError:  # another thread notifies too
                return
            wake()

    def wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Block this thread until the condition holds, for `seconds` at most; returns whether it holds."""
        until = None if seconds is None else monotonic() + seconds
        wakeups: SimpleQueue[None] = SimpleQueue()
        wake = partial(wakeups.put, None)
        while not condition():
            check_not_forked()
            self._wakers.append(wake)
            if not condition() and not _wakes_up(wakeups, until):
                self._remove(wake)
                break
        return condition()

    async def wait_async(self, condition: Callable[[], bool]) -> None:
        """Wait in an event loop until the condition holds."""
        loop = asyncio.get_running_loop()
        while not condition():
            check_not_forked()
            future: asyncio.Future[None] = loop.create_future()
            wake = partial(_wake_task, loop, future)
            self._wakers.append(wake)
            if condition():
                return
            try:
                await future
            except BaseException:  # the task was cancelled
                self._remove(wake)
                raise

    def _remove(self, wake: Callable[[], None]) -> None:
        with suppress(ValueError, IndexError):  # another thread popped it
            self._wakers.remove(wake)


def _wakes_up(wakeups: SimpleQueue[None], until: float | None) -> bool:
    try:
        wakeups.get(timeout=None if until is None else max(0.0, until - monotonic()))
    except Empty:
        return False
    return True


def _wake_task(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits in it
        loop.call_soon_threadsafe(_set_done, future)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
