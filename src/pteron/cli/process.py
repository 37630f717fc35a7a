"""A command that has a process to itself: it ends with 130 and without a word wherever Ctrl-C meets it."""

from __future__ import annotations

import os
import signal
import sys

from pteron.cli import INTERRUPTED, main
from pteron.cli.streams import discard

_SHOW_CURSOR = "\x1b[?25h"


def run() -> int:
    """Run the command of the process's arguments; the exit code."""
    sys.unraisablehook = _unraisable
    try:
        return main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: what is left is to end
        discard(sys.stdout)
        discard(sys.stderr)


def _unraisable(told: sys.UnraisableHookArgs) -> None:
    """Where Python can only report an error, as in callbacks of libraries, Ctrl-C would be lost."""
    if not isinstance(told.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(told)
        return
    if sys.stderr.isatty():
        print(_SHOW_CURSOR, end="", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
