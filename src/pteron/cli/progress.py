"""Progress on stderr: a bar that ends without a trace on a terminal, a line now and then elsewhere.

What takes less than a second leaves nothing on a terminal, what takes less than 30 nothing in a file.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from pteron.cli.terminal import is_rich, visible
from pteron.tools import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_PATIENCE = 1.0  # seconds before a terminal shows anything
_PATIENCE_PLAIN = 30.0  # before the first line where there is no terminal
_EVERY_PLAIN = 60.0  # between two of these


@contextmanager
def shown(doing: str = "") -> Iterator[Progress]:
    """Somebody to tell progress to, for as long as something lasts; `doing` is what it begins with."""
    if not is_rich(sys.stderr):
        yield _Lines(sys.stderr).tell
        return
    bar = Bar(doing)
    try:
        yield bar.tell
    finally:
        bar.end()


class _Lines:
    """Progress where nobody watches, but somebody may read later."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + _PATIENCE_PLAIN

    def tell(self, doing: str, done: int, of: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_PLAIN
        with suppress(OSError):  # a full disk is no reason to stop
            print(visible(f"{doing}: {done} of {of}" if of else doing), file=self._stream, flush=True)


class Bar:
    """A bar that shows itself after a while, from a thread of its own: whoever works may tell nothing."""

    def __init__(self, doing: str) -> None:
        self._state = (doing, 0, 0)
        self._left: float | None = None
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._shown: tuple[RichProgress, TaskID] | None = None
        self._timer = threading.Timer(_PATIENCE, self._start)
        self._timer.daemon = True
        self._timer.start()

    def tell(self, doing: str, done: int, of: int, left: float | None = None) -> None:
        """What is being done, and how far that is; `left` are the seconds left, where somebody knows better
        than by how long it took so far."""
        with self._lock:
            self._state, self._left = (visible(doing), done, of), left
            self._update()

    def end(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._shown is not None:
            self._shown[0].stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        with self._lock:
            progress = RichProgress(
                TextColumn(
                    "{task.description}",
                    markup=False,  # a name may look like it
                    table_column=Column(no_wrap=True, overflow="ellipsis"),
                ),
                BarColumn(bar_width=16),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[left]}"),
                console=Console(file=sys.stderr),
                refresh_per_second=4,
                transient=True,
            )
            self._shown = progress, progress.add_task("", total=None, left="")
            progress.tasks[0].start_time = self._began
            self._update()
            progress.start()

    def _update(self) -> None:
        if self._shown is not None:
            progress, task = self._shown
            doing, done, of = self._state
            left = estimate(time.monotonic() - self._began, done, of) if self._left is None else self._left
            progress.update(task, description=doing, completed=done, total=of or None, left=words(left))


def estimate(elapsed: float, done: int, of: int) -> float | None:
    """The seconds that are left where everything takes as long as what is done; None where nobody knows."""
    if not of or done * 20 < of or elapsed < _PATIENCE:
        return None
    return elapsed * (of - done) / done


def words(left: float | None) -> str:
    """A time that is left, as exactly as it can be known; of the last moment nothing is said."""
    if left is None or left < 1:
        return ""
    if left < 90:
        return f"about {left:.0f} s left" if left < 20 else f"about {5 * round(left / 5)} s left"
    return f"about {left / 60:.0f} min left"
