"""An export as it is seen from a terminal: a bar with the time it took and the time it may still take."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pteron.cli.eta import Estimate, remember, remembered
from pteron.cli.progress import Bar
from pteron.cli.terminal import is_rich, note

_TICK = 0.25  # seconds: an export is silent for minutes, its bar is not


def fetched(name: str) -> Path:
    """The folder of a model by its name, made where it is not there yet."""
    from pteron.llm.models import fetch

    with told() as progress:
        return fetch(name, progress)


@contextmanager
def told() -> Iterator[Callable[[str], None]]:
    """Somebody to tell the lines of an export to. Elsewhere than on a terminal these are what is seen.

    A process that is asked to end meanwhile leaves nothing half done behind, as with Ctrl-C.
    """
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with _shown() if is_rich(sys.stderr) else nullcontext(note) as tell:
            yield tell
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


@contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """A bar on a terminal."""
    from pteron.llm.export.cost import Stage

    course, doing = Estimate(remembered()), "looking at the checkpoint"
    remarks: list[str] = []
    is_over, lock = threading.Event(), threading.Lock()  # of the course, which two threads look at

    def tell(line: str) -> None:
        nonlocal doing
        if isinstance(line, Stage):
            with lock:
                course.enter(line, time.monotonic())
        else:
            remarks.append(line)
        doing = line

    def tick() -> None:
        while not is_over.wait(_TICK):
            now = time.monotonic()
            with lock:
                share, left = course.share(now), course.left(now)
            bar.tell(doing, round(1000 * share), 1000, left)

    bar = Bar(doing)
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield tell
        with lock:
            course.leave(time.monotonic())
        remember(course.slowness)
    finally:
        is_over.set()
        ticking.join()
        bar.end()
    for remark in remarks:
        note(remark)
