"""The lines of sources that ran: they guide the fuzzer and are its coverage.

A trace function follows only functions with unreached lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeAlias

from fuzz import SOURCES

Line: TypeAlias = tuple[str, int]


class Lines:
    """Lines inside functions; those of modules and classes run at import."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.files = sorted({str(file) for pattern in patterns for file in SOURCES.glob(pattern)})
        self.all: set[Line] = set()
        for file in self.files:
            with open(file, encoding="utf-8") as opened:
                self.all |= {(file, line) for line in _lines(compile(opened.read(), file, "exec"))}
        self.reached: set[Line] = set()
        self._left: dict[int, tuple[CodeType, set[int]]] = {}  # by the code's identity: hashing code is slow

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the lines that run inside."""
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        known = self._left.get(id(code))
        if known is None:
            here = code.co_filename in self.files
            left = (
                {line for line in _own_lines(code) if (code.co_filename, line) in self.all} if here else set()
            )
            known = self._left[id(code)] = (code, left)
        return self._ran if known[1] else None

    def _ran(self, frame: FrameType, event: str, argument: object) -> Any:
        left = self._left[id(frame.f_code)][1]
        if event == "line" and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._ran


def _lines(code: CodeType) -> Iterator[int]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function
                yield from _own_lines(constant)
            yield from _lines(constant)


def _own_lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None} - {code.co_firstlineno}
