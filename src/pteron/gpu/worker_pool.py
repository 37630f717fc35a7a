"""Work that whoever holds a device's lock shares with threads, and waits for."""

from __future__ import annotations

import _thread
import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from pteron.gpu.fork import new_lock

Task: TypeAlias = Callable[[], None]

_changing = new_lock()
_pauses: set[object] = set()
_was_enabled = False


def together(tasks: Iterable[Task], count: int, meanwhile: Task | None = None) -> None:
    """Do tasks in up to `count` threads, and `meanwhile` on this one, which then lends a hand.

    At the end no thread works any more, whatever failed: with an error, or Ctrl-C at any line, tasks that
    nobody has begun are left. It is the first error that is raised.

    Python's garbage collector stands still meanwhile. It ends objects on whatever thread it happens to run,
    here on one that the holder of the lock waits for; and an object that needs the lock to end, a stream or a
    program, would wait there for ever.
    """
    crew, pause = _Crew(tasks, count), object()
    try:
        _pause_collector(pause)
        crew.start()
        if meanwhile:
            meanwhile()
        crew.work()
    finally:
        # An interruption may come within what cleans up, even before its first line: then the rest is done
        # by doing it again.
        try:
            crew.finish()
            _resume_collector(pause)
        finally:
            crew.finish()
            _resume_collector(pause)
    crew.check()


class _Crew:
    """Threads that take tasks off one list, each holding a lock as long as it may be at work.

    A thread that starts late, after the end, finds nothing to do; so nobody needs to know which have started.
    """

    def __init__(self, tasks: Iterable[Task], count: int) -> None:
        self._tasks = deque(tasks)
        self._at_work = [threading.Lock() for _ in range(min(count, len(self._tasks)))]
        self._errors: list[BaseException] = []

    def start(self) -> None:
        for at_work in self._at_work:
            # `threading.Thread` waits until its thread runs, and Ctrl-C meanwhile may leave its locks held.
            _thread.start_new_thread(self._help, (at_work,))

    def work(self) -> None:
        """Take tasks until there are none."""
        while self._tasks:
            try:
                task = self._tasks.popleft()
            except IndexError:  # another thread was faster
                return
            task()

    def finish(self) -> None:
        """Leave what nobody has begun, and wait for what is begun."""
        self._tasks.clear()
        for at_work in self._at_work:
            with at_work:
                pass

    def check(self) -> None:
        """Raise what went wrong in a thread."""
        if self._errors:
            first, *_ = self._errors
            self._errors.clear()  # a thread that is about to end would hold what they hold
            raise first

    def _help(self, at_work: threading.Lock) -> None:
        with at_work:
            try:
                self.work()
            except BaseException as error:
                self._errors.append(error)
                self._tasks.clear()


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """The collector stands still within."""
    pause = object()
    try:
        _pause_collector(pause)
        yield
    finally:
        _resume_collector(pause)


def _pause_collector(pause: object) -> None:
    global _was_enabled
    with _changing:
        if not _pauses:
            _was_enabled = gc.isenabled()
        _pauses.add(pause)
        gc.disable()


def _resume_collector(pause: object) -> None:
    """End a pause, if it was begun: the last one's end leaves the collector as it was."""
    with _changing:
        if pause in _pauses:
            if len(_pauses) == 1 and _was_enabled:
                gc.enable()  # first, so that an interruption before the next line does no harm
            _pauses.discard(pause)
