"""Progress on stderr: on a terminal a bar that disappears at the end, elsewhere a line now and then.

A terminal shows nothing for work of less than a second, other streams nothing for less than 30 seconds.

The bar of an export estimates the time left from what each stage usually takes and the pace of the stages
that are done. The cache folder keeps the pace of each stage for the next export on this machine.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.terminal import escape, print_note, supports_color
from pteron.folders import cache_folder
from pteron.tools import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from pteron.llm.export.cost import Stage

_BAR_DELAY = 1.0  # seconds before a terminal shows the bar
_LINE_DELAY = 30.0  # seconds before the first line where stderr is not a terminal
_LINE_INTERVAL = 60.0  # seconds between two such lines
_PRIOR = 10.0  # weight of the usual pace, in seconds: a short first stage says little about the machine
_OVERRUN = 0.5  # a stage that is late by t is expected to take another 0.5 t
_SLOWNESS_MAX = 100.0  # more than this is not a pace: the machine slept
_TICK = 0.25  # between two updates of the bar; stages report nothing for minutes


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
            left = format_remaining(remaining)
            progress.update(task_id, description=task, completed=done, total=total or None, remaining=left)


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


class ExportEta:
    """The time that an export still takes. `slowness` is the duration of each stage on this machine, as a
    multiple of the usual one."""

    def __init__(self, slowness: dict[str, float] | None = None) -> None:
        self.slowness = dict(slowness or {})
        self._stage: Stage | None = None
        self._began = self._entered = 0.0
        self._expected_done = self._took_done = 0.0  # sums over the stages that are done
        self._share = 0.0

    def enter(self, stage: Stage, now: float) -> None:
        """Begin a stage, and end the one before."""
        if self._stage is None:
            self._began = now
        else:
            self.leave(now)
        self._stage, self._entered = stage, now

    def leave(self, now: float) -> None:
        if self._stage is not None:
            name, took = str(self._stage), now - self._entered
            self._expected_done += self._expected(name)
            self._took_done += took
            self.slowness[name] = min(took / self._stage.usual[name], _SLOWNESS_MAX)
            self._stage = None

    def remaining(self, now: float) -> float | None:
        """Seconds until the export is done; None before its first stage."""
        if self._stage is None:
            return None
        name, elapsed = str(self._stage), now - self._entered
        pace = (self._took_done + _PRIOR) / (self._expected_done + _PRIOR)
        late = elapsed - pace * self._expected(name)
        if late > 0:  # the later stages will be slow as well
            pace += late / (self._expected_done + self._expected(name) + _PRIOR)
        names = list(self._stage.usual)
        later = sum(map(self._expected, names[names.index(name) + 1 :]))
        return max(-late, _OVERRUN * late) + pace * later

    def share(self, now: float) -> float:
        """How much is done, from 0 to 1; it never shrinks."""
        remaining = self.remaining(now)
        if remaining is not None:
            elapsed = now - self._began
            self._share = max(self._share, elapsed / max(elapsed + remaining, 1e-3))
        return self._share

    def _expected(self, name: str) -> float:
        assert self._stage is not None
        return self._stage.usual[name] * self.slowness.get(name, 1.0)


def load_slowness() -> dict[str, float]:
    """The slowness of each stage in the last export; empty without one, or where the file is damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(_slowness_file().read_text("utf-8"))
        return {str(name): min(max(float(value), 0.01), _SLOWNESS_MAX) for name, value in found.items()}
    return {}


def save_slowness(slowness: dict[str, float]) -> None:
    with suppress(OSError):
        _slowness_file().parent.mkdir(parents=True, exist_ok=True)
        _slowness_file().write_text(json.dumps(slowness), "utf-8")


def _slowness_file() -> Path:
    return cache_folder() / "export_stages.json"


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
        with _show_bar() if supports_color(sys.stderr) else nullcontext(_print_line) as report:
            yield report
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_line(line: str) -> None:
    from pteron.llm.hub.download import Download

    if not isinstance(line, Download) or line.done == 0:
        print_note(line)


@contextmanager
def _show_bar() -> Iterator[Callable[[str], None]]:
    from pteron.llm.export.cost import Stage
    from pteron.llm.hub.download import Download

    eta, task = ExportEta(load_slowness()), "reading the checkpoint"
    notes: list[str] = []
    is_done, lock = threading.Event(), threading.Lock()  # the lock is for `eta`, which two threads use

    def report(line: str) -> None:
        nonlocal task
        if isinstance(line, Stage):
            with lock:
                eta.enter(line, time.monotonic())
        elif not isinstance(line, Download):
            notes.append(line)
        task = line

    def tick() -> None:
        while not is_done.wait(_TICK):
            now, current = time.monotonic(), task
            if isinstance(current, Download):
                bar.update(current, current.done, current.total)
                continue
            with lock:
                share, remaining = eta.share(now), eta.remaining(now)
            bar.update(current, round(1000 * share), 1000, remaining)

    bar = ProgressBar(task)
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield report
        with lock:
            eta.leave(time.monotonic())
        save_slowness(eta.slowness)
    finally:
        is_done.set()
        ticking.join()
        bar.end()
    for note in notes:
        print_note(note)
