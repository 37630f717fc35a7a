"""What commands print: colour and the terminal's width on a terminal, the plain lines in a pipe or file.

NO_COLOR switches colour off, FORCE_COLOR switches it on in pipes too. `rich` is imported only when needed.
Control characters in names that a file contains, such as escape sequences, are printed as `\\x1b`: a terminal
does not act on them, and a line stays one line.

Characters that the stream's encoding lacks are replaced by ASCII: `≤7 µs` becomes `<=7 us`. Those without a
replacement are printed as their code, `\\u4e00`.
"""

from __future__ import annotations

import codecs
import io
import math
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TextIO

from pteron.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from pteron.tools.text import Table

_STYLES = {"": "", "title": "bold", "note": "dim", "good": "green", "bad": "bold red"}
_LABELS = "cyan"  # the first column of a table that has several
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ASCII = {"µ": "u", "·": "*", "…": "...", "≤": "<=", "≥": ">=", "±": "+/-", "→": "->"}
_ASCII |= dict.fromkeys("\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}", "-") | {"\N{MULTIPLICATION SIGN}": "x"}
_ASCII |= dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'")
_ASCII |= dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"')
_ERRORS = "pteron-ascii"
bar_consoles: list[Console] = []  # of the bars on stderr: what these print appears above the bar


def prepare_streams() -> None:
    """Let stdout and stderr take any text, and stdin be UTF-8 unless a person types. Streams that the parent
    process closed become /dev/null."""
    codecs.register_error(_ERRORS, _replace)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
    if isinstance(sys.stdin, io.TextIOWrapper):
        # strict: in the locale C, Python lets bytes pass that are no text
        sys.stdin.reconfigure(encoding=None if sys.stdin.isatty() else "utf-8", errors="strict")


@contextmanager
def reading_stdin() -> Iterator[None]:
    """Turn the error of bytes that are no text into an InputError."""
    try:
        yield
    except UnicodeDecodeError as error:
        found = f"the byte 0x{error.object[error.start]:02x} ({error.reason})"
        raise InputError(f"standard input is not {error.encoding.upper()} text: {found}") from None


def discard_unwritten(stream: TextIO) -> None:
    """Flush a stream. What cannot be written is dropped: Python would try again when it exits, and fail."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):  # a stream without a file descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_result(report: object, lines: Iterable[str], *, as_json: bool) -> None:
    from pteron.tools.text import json_text

    if as_json:
        print(json_text(report))
    else:
        print_report(lines)


def print_report(lines: Iterable[str]) -> None:
    if not supports_color(sys.stdout):
        print("\n".join(map(escape, lines)))
        return
    from pteron.tools.text import TableLine

    console, printed = _console(sys.stdout), None
    for line in lines:
        if not isinstance(line, TableLine):
            console.print(_styled(line))
        elif line.table is not printed:  # the first row prints the whole table
            printed = line.table
            console.print(_grid(printed))


def print_error(problem: str) -> None:
    """Print on stderr, in one line, why a command failed."""
    _print_stderr(escape(f"pteron: {problem}"), len("pteron:"), "bold red")


def print_note(text: str) -> None:
    """Print on stderr what is not part of a command's result."""
    text = escape(text)
    _print_stderr(text, len(text), "dim")


class StderrAboveBar(io.TextIOBase):
    """stderr for lines that other threads print while a bar may be drawn."""

    def write(self, text: str) -> int:
        consoles = bar_consoles[-1:]  # copied: another thread may end the bar now
        if consoles:
            consoles[0].out(text, end="", highlight=False)
        else:
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def device_notes(show: Callable[[str], None]) -> Iterator[None]:
    """Show what opening a device logs, each line once, such as that only a software adapter was found."""
    import logging

    logger, shown = logging.getLogger("pteron.gpu"), set[str]()

    def show_once(record: logging.LogRecord) -> bool:
        if record.getMessage() not in shown:
            shown.add(record.getMessage())
            show(record.getMessage())
        return False

    handler = logging.Handler()
    handler.addFilter(show_once)
    handlers, level = logger.handlers, logger.level
    logger.handlers = [handler]  # no outer context shows it too
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)


def print_piece(text: str) -> None:
    """Print a piece of a model's text: on a terminal with control characters escaped, in a pipe unchanged."""
    if sys.stdout.isatty():
        text = text.translate(_ESCAPES | {ord(kept): kept for kept in "\n\t"})
    print(text, end="", flush=True)


class WordWrap:
    """Breaks a text that comes in pieces between its words, at the width of the terminal that standard output
    is; elsewhere the text is unchanged. Wide characters, as of Chinese, are words of their own."""

    def __init__(self, width: float | None = None) -> None:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
        self._width = columns if width is None else width
        self._column = 0
        self._gap = self._word = ""  # what is not printed yet: a word may continue in the next piece

    def add(self, text: str) -> str:
        """The text that can be printed now."""
        if self._width == math.inf:
            return text
        printed = ""
        for character in text:
            if not character.isspace():
                self._word += character
                if unicodedata.east_asian_width(character) in "WF":
                    printed += self.end()
                continue
            printed += self.end()
            if character == "\n":
                printed, self._column, self._gap = printed + "\n", 0, ""
            else:
                self._gap += character
        return printed

    def end(self) -> str:
        """The last word, which is complete."""
        if not self._word:
            return ""
        from rich.cells import cell_len

        gap, length = self._gap, cell_len(self._word)
        if self._column and self._column + len(gap) + length > self._width:
            gap, self._column = "\n", 0
        else:
            self._column += len(gap)
        self._column += length
        printed, self._gap, self._word = gap + self._word, "", ""
        return printed


def escape(text: str) -> str:
    """A line without control characters."""
    return text.translate(_ESCAPES)


def supports_color(stream: TextIO) -> bool:
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _print_stderr(text: str, length: int, style: str) -> None:
    """Print a line whose first `length` characters have a style."""
    with suppress(OSError):  # stderr is closed or its disk is full
        if supports_color(sys.stderr):
            from rich.text import Text

            styled = Text().append(text[:length], style).append(text[length:])
            (console,) = bar_consoles[-1:] or [_console(sys.stderr)]
            console.print(styled, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)


def stderr_console() -> Console:
    """A console for a bar."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _styled(line: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(escape(line), _STYLES[getattr(line, "style", "")] or style)


def _grid(table: Table) -> Padding:
    """A table that fits the terminal: its widest column wraps."""
    from rich.padding import Padding
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=(0, 2, 0, 0))
    widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
    for width, sign in zip(widths, table.align, strict=True):
        justify: Literal["left", "right"] = "right" if sign == ">" else "left"
        grid.add_column(justify=justify, overflow="fold", no_wrap=width < max(widths))
    labels = _LABELS if len(widths) > 1 else ""
    for first, *others in table.rows:
        grid.add_row(_styled(first, labels), *map(_styled, others))
    return Padding(grid, (0, 0, 0, table.indent))


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """The codec error handler that `prepare_streams` installs."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    if character in _ASCII:
        return _ASCII[character], error.start + 1
    error.end = error.start + 1
    return codecs.backslashreplace_errors(error)
