"""Progress on stderr: on a terminal a bar that disappears at the end, elsewhere a line now and then.

A terminal shows nothing for work of less than a second, other streams nothing for less than 30 seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from pteron.cli.terminal import escape, supports_color
from pteron.tools import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_BAR_DELAY = 1.0  # seconds before a terminal shows the bar
_LINE_DELAY = 30.0  # seconds before the first line where stderr is not a terminal
_LINE_INTERVAL = 60.0  # seconds between two such lines


@contextmanager
def show_progress(task: str = "") -> Iterator[Progress]:
    """A callback that shows progress while the context is open; `task` is shown before its first call."""
    if not supports_color(sys.stderr):
        yield _LineWriter(sys.stderr).update
        return
    bar = ProgressBar(task)
    try:
        yield bar.update
    finally:
        bar.end()


class _LineWriter:
    """Progress in a log file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + _LINE_DELAY

    def update(self, task: str, done: int, total: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_INTERVAL
        with suppress(OSError):  # a full disk does not stop the work
            print(escape(f"{task}: {done} of {total}" if total else task), file=self._stream, flush=True)


class ProgressBar:
    """A bar that appears after a delay, drawn by its own thread: the worker may not report for a while."""

    def __init__(self, task: str) -> None:
        self._state = (task, 0, 0)
        self._remaining: float | None = None
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._drawn: tuple[RichProgress, TaskID] | None = None
        self._timer = threading.Timer(_BAR_DELAY, self._start)
        self._timer.daemon = True
        self._timer.start()

    def update(self, task: str, done: int, total: int, remaining: float | None = None) -> None:
        """`remaining` is the caller's estimate in seconds; by default the elapsed time is extrapolated."""
        with self._lock:
            self._state, self._remaining = (escape(task), done, total), remaining
            self._draw()

    def end(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._drawn is not None:
            self._drawn[0].stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        name = TextColumn(
            "{task.description}",
            markup=False,  # a file name may contain brackets
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        )
        with self._lock:
            progress = RichProgress(
                name,
                BarColumn(bar_width=16),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[remaining]}"),
                console=Console(file=sys.stderr),
                refresh_per_second=4,
                transient=True,
            )
            self._drawn = progress, progress.add_task("", total=None, remaining="")
            progress.tasks[0].start_time = self._began
            self._draw()
            progress.start()

    def _draw(self) -> None:
        if self._drawn is not None:
            progress, task_id = self._drawn
            task, done, total = self._state
            remaining = self._remaining
            if remaining is None:
                remaining = extrapolate(time.monotonic() - self._began, done, total)
            progress.update(
                task_id,
                description=task,
                completed=done,
                total=total or None,
                remaining=format_remaining(remaining),
            )


def extrapolate(elapsed: float, done: int, total: int) -> float | None:
    """The seconds left if the rest is as quick as what is done; None while less than 5 % is done."""
    if not total or done * 20 < total or elapsed < _BAR_DELAY:
        return None
    return elapsed * (total - done) / done


def format_remaining(seconds: float | None) -> str:
    """Rounded, since it is an estimate; empty for the last second."""
    if seconds is None or seconds < 1:
        return ""
    if seconds < 90:
        return f"about {seconds:.0f} s left" if seconds < 20 else f"about {5 * round(seconds / 5)} s left"
    return f"about {seconds / 60:.0f} min left"
