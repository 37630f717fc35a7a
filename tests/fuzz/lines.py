"""Which lines of some sources ran: what guides a fuzzer, and the coverage that it reports.

From Python 3.12 on by `sys.monitoring`, where a line costs nothing once it was seen; before, by a trace
function that looks only into functions with lines left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeAlias

from fuzz import SOURCES

Line: TypeAlias = tuple[str, int]
_TOOL = 4  # an identifier that no debugger, profiler or coverage tool has claimed


class Lines:
    """Lines inside functions; those of modules and classes run at import."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.files = sorted({str(file) for pattern in patterns for file in SOURCES.glob(pattern)})
        self.all: set[Line] = set()
        for file in self.files:
            with open(file, encoding="utf-8") as opened:
                self.all |= {(file, line) for line in _lines(compile(opened.read(), file, "exec"))}
        self.reached: set[Line] = set()
        self._is_registered = False  # with `sys.monitoring`
        self._left: dict[int, tuple[CodeType, set[int]]] = {}  # by the code's identity: hashing code is slow

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what runs inside."""
        if sys.version_info >= (3, 12):
            monitoring: Any = sys.monitoring
            if monitoring.get_tool(_TOOL) is None:
                monitoring.use_tool_id(_TOOL, "fuzz")
            if not self._is_registered:
                monitoring.register_callback(_TOOL, monitoring.events.LINE, self._monitored)
                monitoring.restart_events()  # what others have seen was not seen by this one
                self._is_registered = True
            monitoring.set_events(_TOOL, monitoring.events.LINE)
            try:
                yield
            finally:
                monitoring.set_events(_TOOL, 0)
        else:
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(None)

    def _monitored(self, code: CodeType, line: int) -> Any:
        if (code.co_filename, line) in self.all:
            self.reached.add((code.co_filename, line))
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]  # from 3.12 on

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
            if constant.co_flags & 0x2:  # a function: its variables are its own
                yield from _own_lines(constant)
            yield from _lines(constant)


def _own_lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None} - {code.co_firstlineno}
