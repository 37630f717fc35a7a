"""An export as it is seen from a terminal: a bar with the time it took and the time it may still take."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pteron.cli.progress import shown
from pteron.cli.screen import is_rich, note

_TICK = 0.25  # seconds: an export is silent for minutes, its bar is not


def fetched(name: str) -> Path:
    """The folder of a model by its name, made where it is not there yet."""
    from pteron.llm.catalogue import fetch

    with told() as progress:
        return fetch(name, progress)


@contextmanager
def told() -> Iterator[Callable[[str], None]]:
    """Somebody to tell the lines of an export to. Elsewhere than on a terminal these are what is seen."""
    if not is_rich(sys.stderr):
        yield note
        return
    from pteron.llm.export.stages import Course, Stage

    course, doing = Course(time.monotonic()), ""
    remarks: list[str] = []
    is_over = threading.Event()

    def tell(line: str) -> None:
        nonlocal doing
        if isinstance(line, Stage):
            course.enter(line, time.monotonic())
        else:
            remarks.append(line)
        doing = line

    with shown() as progress:

        def tick() -> None:
            while not is_over.wait(_TICK):
                progress(doing, round(1000 * course.share(time.monotonic())), 1000)

        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield tell
        finally:
            is_over.set()
            ticking.join()
    for remark in remarks:
        note(remark)
