"""CountedLine: a progress line that says how much is done."""

from __future__ import annotations

from typing import Self


class CountedLine(str):
    """A line of text with the bytes that are done; the first line of a task has `done` 0."""

    __slots__ = ("done", "total")
    done: int
    total: int

    @classmethod
    def counted(cls, text: str, done: int, total: int) -> Self:
        line = cls(text)
        line.done, line.total = done, total
        return line
