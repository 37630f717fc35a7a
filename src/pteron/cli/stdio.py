"""The process's own streams: there, and able to show what is written to them, whatever the terminal is.

Text that an encoding lacks is replaced by what stands for it in ASCII: `≤7 µs` becomes `<=7 us`. What has no
such stand-in, as most of what models may say, is shown by its number, `\\u4e00`.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_STAND_INS = {
    "µ": "u",
    "·": "*",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "→": "->",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MINUS SIGN}": "-",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
}
_ERRORS = "pteron-stand-ins"


def prepare() -> None:
    """Let all three streams exist, and the two for output take any text.

    A stream may have been closed by whoever started the process; the next file opened would take its place,
    and get what is meant for it.
    """
    codecs.register_error(_ERRORS, _stand_in)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing(number))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def flush() -> None:
    """Write what was printed so far. This fails here if anywhere, where an error can still be told."""
    sys.stdout.flush()


def discard(stream: TextIO) -> None:
    """Forget what a stream has not written where it cannot be: Python would try again at its end."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):  # one that is no file's
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _nothing(number: int) -> TextIO:
    """A stream from and to nowhere, under the number of the one that is missing."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if sign in _STAND_INS:
        return _STAND_INS[sign], error.start + 1
    error.end = error.start + 1
    return codecs.backslashreplace_errors(error)
