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

_OF_CTRL_C = {"BaseException", "KeyboardInterrupt"}
_AT_JUMPS = sys.version_info >= (3, 13)


class Instructions:
    """The instructions of some code, and what would handle an exception at each."""

    def __init__(self, code: CodeType) -> None:
        bytecode: Any = dis.Bytecode(code)  # its type stubs leave out the exception table
        self.listed = list(bytecode)
        self.at = {each.offset: each for each in self.listed}
        self._entries = bytecode.exception_entries

    def jumps_back(self) -> list[Any]:
        """Those of loops, where Python heeds signals; it does not where a generator waits for another."""
        return [each for each in self.listed if "JUMP_BACKWARD" in each.opname and "NO_" not in each.opname]

    def handlers(self, offset: int) -> list[int]:
        """Where handling begins of what is raised at an offset, and of what that handling raises again."""
        for entry in self._entries:
            if entry.start <= offset < entry.end:
                return [entry.target, *self.handlers(entry.target)]
        return []

    def blocks(self, offset: int) -> set[int]:
        """As `handlers`, but for those alone that have something to do at Ctrl-C: all that end blocks."""
        return {
            target
            for target in self.handlers(offset)
            if self.at[target].opname == "PUSH_EXC_INFO"
            and self._takes_all(self.listed.index(self.at[target]) + 1)
        }

    def _takes_all(self, start: int) -> bool:
        """Whether the clauses from an instruction on take up every exception: one that is told from others
        by its kind, which is not that of Ctrl-C, goes on to the next."""
        names: set[object] = set()
        for position in range(start, len(self.listed)):
            each = self.listed[position]
            if each.opname == "CHECK_EXC_MATCH":
                following = self.at[self.listed[position + 1].argval]
                return bool(names & _OF_CTRL_C) or self._takes_all(self.listed.index(following))
            if not each.opname.startswith(("LOAD_", "BUILD_TUPLE", "NOT_TAKEN")):
                break
            names.add(each.argval)
        return bool(each.opname != "RERAISE")


@cache
def heeding(code: CodeType) -> frozenset[int]:
    """The offsets at which Python heeds signals: after calls, and where loops jump back. Where what would
    handle an exception changes with the instruction after a call, as at the end of a `with` block, raising
    there would not be what a signal does, so it is left out; and so are the loops of `unguarded_loops`."""
    instructions = Instructions(code)
    after_calls = (
        following.offset
        for call, following in pairwise(instructions.listed)
        if call.opname.startswith("CALL")
        and instructions.handlers(call.offset) == instructions.handlers(following.offset)
    )
    jumps = (
        jump.offset
        for jump in instructions.jumps_back()
        if instructions.handlers(jump.offset) == instructions.handlers(jump.argval)
    )
    return frozenset([*after_calls, *jumps])


def unguarded_loops(code: CodeType) -> list[int]:
    """The lines of loops, inside a `with` or `try` block, that a signal leaves without the block's end.

    Python's compilers leave holes in what their blocks cover. Up to 3.12 a signal counts as raised by the
    instruction before the loop's first, which may be before the block; since then as raised by the jump back,
    which is in no block where it follows a condition. No loop of a function that a block calls is one.
    """
    if not code.co_exceptiontable:
        return []
    instructions = Instructions(code)
    before = {second.offset: first.offset for first, second in pairwise(instructions.listed)}
    return sorted(
        jump.positions.lineno
        for jump in instructions.jumps_back()
        if instructions.blocks(jump.argval)
        - instructions.blocks(jump.offset if _AT_JUMPS else before[jump.argval])
    )


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
        sys._getframe().f_trace_opcodes = True  # of any frame, so that Python 3.12 tells of instructions
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Trace | None:
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        if event == "call":
            frame.f_trace = self._trace  # first: Python 3.13 tells of instructions of traced frames alone
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
