"""Progress on a terminal: a line on stderr that ends without a trace; nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pteron.tools.progress import Progress, silent

_PATIENCE = 1.0  # seconds: what takes less is not worth a line


@contextmanager
def shown() -> Iterator[Progress]:
    """Somebody to tell progress to, for as long as something lasts."""
    if not sys.stderr.isatty():
        yield silent
        return
    began = time.monotonic()

    def show(doing: str, done: int, of: int) -> None:
        if time.monotonic() - began >= _PATIENCE:
            count = f" {done} of {of}" if of else ""
            print(f"\r\x1b[2K{doing}{count}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
