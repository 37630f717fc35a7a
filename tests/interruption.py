"""Ctrl-C at a chosen point: wherever Python heeds signals, without waiting for one."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Self

Trace = Callable[[FrameType, str, Any], Any]


@cache
def heeding(code: CodeType) -> frozenset[int]:
    """The offsets at which Python heeds signals: after calls, and where loops jump back. Where what would
    handle an exception changes with the instruction after a call, as at the end of a `with` block, raising
    there would not be what a signal does, so it is left out."""
    bytecode: Any = dis.Bytecode(code)  # its type stubs leave out the exception table
    instructions = list(bytecode)
    entries = bytecode.exception_entries

    def handler(offset: int) -> list[int]:
        return [entry.target for entry in entries if entry.start <= offset < entry.end]

    after_calls = (
        following.offset
        for call, following in pairwise(instructions)
        if call.opname.startswith("CALL") and handler(call.offset) == handler(following.offset)
    )
    jumps = (each.offset for each in instructions if each.opname.startswith("JUMP_BACKWARD"))
    return frozenset([*after_calls, *jumps])


class InterruptedAt:
    """Within it, KeyboardInterrupt, or another error, is raised on this thread at the n-th such point of some
    folder's code."""

    def __init__(self, point: int, folder: str, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self._left = point
        self._folder = folder
        self._kind = kind
        self.passed = 0  # points
        self.where = ""

    @property
    def is_reached(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Trace | None:
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        # Where a function begins, too.
        if event == "call" or (event == "opcode" and frame.f_lasti in heeding(frame.f_code)):
            self._left -= 1
            self.passed += 1
            if self._left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.interrupt()
        return self._trace

    def interrupt(self) -> None:
        """What happens there."""
        raise self._kind


class CalledAt(InterruptedAt):
    """Within it, a function is called at such a point, as a signal's handler is; the code there goes on."""

    def __init__(self, point: int, folder: str, function: Callable[[], object]) -> None:
        super().__init__(point, folder)
        self._function = function

    def interrupt(self) -> None:
        sys.settrace(None)
        self._function()
        sys.settrace(self._trace)
