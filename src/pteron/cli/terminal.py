"""What commands say: with colour, and set to the terminal's width, on a terminal; plain text elsewhere.

Text in a pipe or a file is exactly the lines. NO_COLOR keeps colour from terminals, FORCE_COLOR brings it to
pipes too. `rich` is imported where it has something to do. Names out of a file may hold signs that a terminal
obeys, as escape sequences do: these are shown by their numbers, `\\x1b`, and a line stays one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from pteron.tools.text import Table

_STYLES = {"": "", "title": "bold", "note": "dim", "good": "green", "bad": "bold red"}
_LABELS = "cyan"  # the first column of a table, where it has further ones
_OBEYED = {sign: f"\\x{sign:02x}" for sign in (*range(0x20), *range(0x7F, 0xA0))}


def show(lines: Iterable[str]) -> None:
    """Print a report."""
    if not is_rich(sys.stdout):
        print("\n".join(map(visible, lines)))
        return
    from pteron.tools.text import TableLine

    console, shown = _console(sys.stdout), None
    for line in lines:
        if not isinstance(line, TableLine):
            console.print(_text(line))
        elif line.table is not shown:  # its other rows are shown with the first
            shown = line.table
            console.print(_grid(shown))


def complain(problem: str) -> None:
    """Say in a line on stderr why a command failed."""
    _tell(visible(f"pteron: {problem}"), len("pteron:"), "bold red")


def note(text: str) -> None:
    """Say something on stderr that is no part of a command's result."""
    text = visible(text)
    _tell(text, len(text), "dim")


def visible(text: str) -> str:
    """A line with nothing in it that a terminal would obey."""
    return text.translate(_OBEYED)


def tell_text(text: str) -> None:
    """Print a piece of a text as it comes: on a terminal with nothing in it that would be obeyed but ends of
    lines and tabs, in a pipe as it is."""
    if sys.stdout.isatty():
        text = text.translate(_OBEYED | {ord(sign): sign for sign in "\n\t"})
    print(text, end="", flush=True)


def is_rich(stream: TextIO) -> bool:
    """Whether a stream takes colour: a terminal that knows how to, or whatever FORCE_COLOR is set for."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _tell(text: str, length: int, style: str) -> None:
    """Print a line on stderr, so much of it styled."""
    with suppress(OSError):  # there is nobody left to tell
        if is_rich(sys.stderr):
            from rich.text import Text

            said = Text().append(text[:length], style).append(text[length:])
            _console(sys.stderr).print(said, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _text(line: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(visible(line), _STYLES[getattr(line, "style", "")] or style)


def _grid(table: Table) -> Padding:
    """A table that fits into the terminal: its widest column folds what it has no room for."""
    from rich.padding import Padding
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=(0, 2, 0, 0))
    widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
    for width, sign in zip(widths, table.align, strict=True):
        justify: Literal["left", "right"] = "right" if sign == ">" else "left"
        grid.add_column(justify=justify, overflow="fold", no_wrap=width < max(widths))
    labels = _LABELS if len(widths) > 1 else ""
    for first, *others in table.rows:
        grid.add_row(_text(first, labels), *map(_text, others))
    return Padding(grid, (0, 0, 0, table.indent))
