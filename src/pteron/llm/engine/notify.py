"""Notifier: wakes threads and event-loop tasks that wait for a condition."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from pteron.gpu.fork import check_not_forked, new_lock


class Notifier:
    """`notify` is called after a condition became true: waiters check theirs under the lock, so no wake-up is
    lost."""

    def __init__(self) -> None:
        self._changed = threading.Condition(new_lock())
        self._tasks: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Wake all current waiters."""
        with self._changed:
            self._changed.notify_all()
            tasks, self._tasks = self._tasks, []
        for task in tasks:
            with suppress(RuntimeError):  # its loop is closed: nothing waits in it
                task.get_loop().call_soon_threadsafe(_set_done, task)

    def wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Block this thread until the condition holds, for `seconds` at most; returns whether it holds."""
        if not condition():
            check_not_forked()
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    async def wait_async(self, condition: Callable[[], bool]) -> None:
        """Wait in an event loop until the condition holds."""
        while not condition():
            check_not_forked()
            task = asyncio.get_running_loop().create_future()
            with self._changed:
                if condition():
                    return
                self._tasks.append(task)
            await task


def _set_done(task: asyncio.Future[None]) -> None:
    if not task.done():
        task.set_result(None)
