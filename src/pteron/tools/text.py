"""Reports -> lines for a terminal (sizes, counts, aligned columns), HTML for notebooks, JSON for programs.

A report is a sequence of lines. `Line` and `TableLine` are strings that also carry a style and the table they
belong to; `pteron.cli.terminal` uses these for colour and layout.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Literal, Self, TypeAlias

Style: TypeAlias = Literal["", "title", "note", "good", "bad"]
_UNITS = ("kB", "MB", "GB", "TB")


class Line(str):
    """A line or a cell, with a style: a title, a note, good or bad news."""

    __slots__ = ("style",)
    style: Style

    def __new__(cls, text: str, style: Style = "") -> Self:
        line = super().__new__(cls, text)
        line.style = style
        return line


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a table and their layout, shared by all its lines."""

    rows: tuple[tuple[str, ...], ...]
    indent: int
    align: str  # "<" or ">" per column


class TableLine(Line):
    __slots__ = ("table",)

    def __init__(self, text: str, table: Table) -> None:
        self.table = table

    def __new__(cls, text: str, table: Table) -> Self:
        return super().__new__(cls, text)


def human_bytes(count: int) -> str:
    """A size in three or four digits: 512 B, 5.1 kB, 848.2 MB."""
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in _UNITS:
        size /= 1000
        if size < 999.95 or unit == _UNITS[-1]:
            break
    return f"{size:,.1f} {unit}"


def human_time(seconds: float) -> str:
    """A duration in s, ms or µs."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def features_text(features: Mapping[str, bool]) -> str:
    """What an adapter has, then what it lacks."""
    has, lacks = ([name for name in features if features[name] is each] for each in (True, False))
    return "; ".join([", ".join(has) or "none", *([f"lacks {', '.join(lacks)}"] if lacks else [])])


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun: 1 node, 2 nodes."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def columns(rows: Iterable[Sequence[str]], indent: int = 0, align: str = "") -> list[str]:
    """Rows as lines with aligned columns; `align` has "<" or ">" per column, "<" for the rest."""
    cells = tuple(tuple(row) for row in rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = Table(cells, indent, align.ljust(len(widths), "<"))
    lines: list[str] = []
    for row in cells:
        padded = (f"{cell:{sign}{width}}" for cell, sign, width in zip(row, table.align, widths, strict=True))
        lines.append(TableLine((" " * indent + "  ".join(padded)).rstrip(), table))
    return lines


_HTML_STYLES = {
    "title": "font-weight:bold",
    "note": "opacity:.7",
    "good": "color:#1a7f37",
    "bad": "color:#cf222e",
}


def html_text(lines: Iterable[str]) -> str:
    """Lines as HTML for a notebook; all texts are escaped."""
    parts, shown = [], None
    for line in lines:
        if not isinstance(line, TableLine):
            parts.append(_html_element("div", line) if line.strip() else "<br>")
        elif line.table is not shown:  # the first row shows the whole table
            shown = line.table
            parts.append(_html_table(shown))
    content = "".join(parts)
    return f'<div style="font-variant-numeric:tabular-nums;white-space:pre-wrap">{content}</div>'


def _html_table(table: Table) -> str:
    sides = ["text-align:right" if sign == ">" else "text-align:left" for sign in table.align]
    rows = ("".join(map(partial(_html_element, "td"), row, sides)) for row in table.rows)
    return f'<table style="white-space:pre">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>'


def _html_element(tag: str, text: str, style: str = "") -> str:
    from html import escape  # here: only notebooks need it

    own = _HTML_STYLES.get(text.style, "") if isinstance(text, Line) else ""
    styles = ";".join(filter(None, (style, own)))
    attribute = f' style="{styles}"' if styles else ""
    return f"<{tag}{attribute}>{escape(text)}</{tag}>"


def json_text(report: object) -> str:
    """A report of dataclasses as ASCII JSON."""
    return json.dumps(plain(report), indent=2, allow_nan=False)


def plain(value: object) -> object:
    """A value as JSON types: a dataclass becomes an object, NaN and infinity null, other types their text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return value if isinstance(value, (str, int, type(None))) else str(value)


# Pages ------------------------------------------------------------------------------------------

# The content security policy of a page allows only its own script and loads nothing. Names out of a program
# are JSON data; the script inserts them as text.
_PLACE = re.compile(r"\{\{(title|data)\}\}")


def build_page(package: str, title: str, data: object) -> str:
    """One HTML file: the `page.html` of a package, which web/ built, with `{{title}}` and `{{data}}` filled
    in. Lone surrogates, as in a file name that is not UTF-8, are escaped."""
    import html  # here: only pages need them
    from importlib.resources import files

    markup = (files(package) / "page.html").read_text("utf-8")
    parts = {"title": html.escape(title), "data": _json(data)}
    page = _PLACE.sub(lambda place: parts[place[1]], markup)  # one pass: data may contain "{{title}}"
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _json(content: object) -> str:
    """JSON in which an HTML parser finds no tag."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
