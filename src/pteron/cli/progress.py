"""Progress on stderr: on a terminal a bar that disappears at the end, elsewhere a line now and then.

A terminal shows nothing for work of less than a second, other streams nothing for less than 30 seconds.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from pteron.cli.terminal import bar_consoles, escape, print_note, stderr_console, supports_color
from pteron.tools import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_BAR_DELAY = 1.0  # seconds before a terminal shows the bar
_LINE_DELAY = 30.0  # seconds before the first line where stderr is not a terminal
_LINE_INTERVAL = 60.0  # seconds between two such lines
_WATCH_INTERVAL = 0.25  # seconds


@contextmanager
def show_progress(task: str = "") -> Iterator[Progress]:
    """A callback that shows progress while the context is open; `task` is shown before its first call."""
    if not supports_color(sys.stderr):
        yield _LineWriter()
        return
    bar = ProgressBar(task)
    try:
        yield bar.update
    finally:
        bar.end()


@contextmanager
def watching(state: Callable[[], tuple[str, int, int]]) -> Iterator[None]:
    """Show the progress of work that reports none: what `state` says, a few times a second."""
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(_WATCH_INTERVAL):
            progress(*state())

    with show_progress(state()[0]) as progress:
        watcher = threading.Thread(target=report, name="pteron progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


class _LineWriter:
    def __init__(self) -> None:
        self._next = time.monotonic() + _LINE_DELAY

    def __call__(self, task: str, done: int, total: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_INTERVAL
        with suppress(OSError):  # a full disk does not stop the work
            print(escape(f"{task}: {done} of {total}" if total else task), file=sys.stderr, flush=True)


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
        """`remaining` is the caller's estimate in seconds, `inf` if it has none; by default the elapsed time
        is extrapolated."""
        with self._lock:
            self._state, self._remaining = (escape(task), done, total), remaining
            self._draw()

    def end(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._drawn is not None:
            self._drawn[0].stop()
            bar_consoles.remove(self._drawn[0].console)

    def _start(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        name = TextColumn(
            "{task.description}",
            markup=False,  # a file name may contain brackets
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        )
        console = stderr_console()
        bar_consoles.append(console)
        with self._lock:
            progress = RichProgress(
                name,
                BarColumn(bar_width=16),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[remaining]}"),
                console=console,
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
            left = format_remaining(remaining)
            progress.update(task_id, description=task, completed=done, total=total or None, remaining=left)


def extrapolate(elapsed: float, done: int, total: int) -> float | None:
    """The seconds left if the rest is as quick as what is done; None while less than 5 % is done."""
    if not total or done * 20 < total or elapsed < _BAR_DELAY:
        return None
    return elapsed * (total - done) / done


def format_remaining(seconds: float | None) -> str:
    """Rounded, since it is an estimate; empty for the last second, and if it is not known."""
    if seconds is None or seconds < 1 or seconds == math.inf:
        return ""
    if seconds < 90:
        return f"about {seconds:.0f} s left" if seconds < 20 else f"about {5 * round(seconds / 5)} s left"
    return f"about {seconds / 60:.0f} min left"


@contextmanager
def model_progress() -> Iterator[Callable[[str], None]]:
    """`export_progress` from the first line on: most models need neither a download nor an export."""
    shown: Callable[[str], None] | None = None

    def report(line: str) -> None:
        nonlocal shown
        shown = shown or stack.enter_context(export_progress())
        shown(line)

    with ExitStack() as stack:
        yield report


@contextmanager
def export_progress() -> Iterator[Callable[[str], None]]:
    """A callback for the lines of a download and of an export: a bar on a terminal, elsewhere the lines.

    SIGTERM ends the process as Ctrl-C does, so that temporary files are removed.
    """
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with _show_bar() if supports_color(sys.stderr) else nullcontext(_print_line) as show:
            yield show
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_line(line: str) -> None:
    from pteron.names.counted_line import CountedLine

    if not isinstance(line, CountedLine) or line.done == 0:
        print_note(line)


@contextmanager
def _show_bar() -> Iterator[Callable[[str], None]]:
    from pteron.names.counted_line import CountedLine

    task = "reading the checkpoint"
    since = time.monotonic()  # when the task began
    notes: list[str] = []

    def report(line: str) -> None:
        nonlocal task, since
        if line != task:
            task, since = line, time.monotonic()
        if isinstance(line, CountedLine):
            remaining = extrapolate(time.monotonic() - since, line.done, line.total)
            bar.update(line, line.done, line.total, math.inf if remaining is None else remaining)
        else:
            notes.append(line)
            bar.update(line, 0, 0)

    bar = ProgressBar(task)
    try:
        yield report
    finally:
        bar.end()
    for note in notes:
        print_note(note)
