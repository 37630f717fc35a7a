"""Reports -> text for a terminal: sizes, counts, aligned columns; and JSON for other programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

_UNITS = ("kB", "MB", "GB", "TB")


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
    """A duration in the unit that suits it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number of things: 1 node, 2 nodes."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def columns(rows: Iterable[Sequence[str]], indent: int = 0, align: str = "") -> list[str]:
    """Rows as lines with aligned columns; `align` has "<" or ">" per column, and is "<" beyond its end."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = align.ljust(len(widths), "<")
    return [
        (
            " " * indent
            + "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def json_text(report: object) -> str:
    """A report, which is made of dataclasses, as JSON."""
    return json.dumps(report, indent=2, default=plain, ensure_ascii=False)


def plain(value: object) -> object:
    """What JSON makes of a value it has no word for: of a dataclass its fields, of anything else its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)
