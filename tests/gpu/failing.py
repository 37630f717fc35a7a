"""Faults on demand: the n-th step of work on a device fails, before or after it is done."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType, TracebackType
from typing import Any

import pytest

from pteron import Device
from pteron.gpu import Commands, Readback

# Whatever a call, a load or a reset does on the device goes through these.
STEPS: tuple[tuple[type, str], ...] = (
    (Device, "create_buffer"),
    (Device, "readback"),
    (Device, "write"),
    (Commands, "record"),
    (Device, "clear"),
    (Commands, "submit_locked"),
    (Device, "poll"),
    (Device, "_compile"),
    (Readback, "begin"),
    (Readback, "fill"),
)


class Failing:
    """Within it, the n-th step raises an error; `left` is positive afterwards where it was not come to."""

    def __init__(self, at: int, error: BaseException, *, after: bool, only: str = "") -> None:
        self.left = at
        self.where = ""
        self.is_raised = False  # whether the work ended with the error
        self._error = error
        self._after = after
        self._steps = [step for step in STEPS if only in ("", step[1])]
        self._patches = pytest.MonkeyPatch()

    def __enter__(self) -> Failing:
        for owner, name in self._steps:
            self._patches.setattr(owner, name, self._failing(name, getattr(owner, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.undo()
        self.is_raised = error is self._error
        self._error.__traceback__ = None  # it would hold what the work held

    def _failing(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def fail_once(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            is_now = self.left == 0
            if is_now:
                self.where = name
            if is_now and not self._after:
                raise self._error
            result = step(*arguments, **named)
            if is_now:
                raise self._error
            return result

        return fail_once


Trace = Callable[[FrameType, str, Any], Any]


@cache
def interruptible(code: CodeType) -> frozenset[int]:
    """Bytecode offsets at which Python handles signals: after calls, and at the backward jumps of loops.

    Python raises the interruption inside the call, which a trace function cannot do. If a `with` block ends
    right after a call, the next instruction has another exception handler: such an offset is left out.
    """
    instructions = list(dis.get_instructions(code))
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]  # there is no public function

    def handler(offset: int) -> int | None:
        return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)

    after_calls = (
        following.offset
        for instruction, following in itertools.pairwise(instructions)
        if instruction.opname.startswith("CALL") and handler(instruction.offset) == handler(following.offset)
    )
    jumps = (each.offset for each in instructions if each.opname.startswith("JUMP_BACKWARD"))
    return frozenset([*after_calls, *jumps])


class Interruption:
    """Raises KeyboardInterrupt on this thread at the n-th point in some files where Ctrl-C can."""

    def __init__(self, at: int, *files: str) -> None:
        self.left = at
        self._files = files
        self.where = ""

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        sys.settrace(self._before)
        self.is_raised = kind is KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, argument: object) -> Trace | None:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        # Python also handles signals at the start of a function.
        if event == "call" or (event == "opcode" and frame.f_lasti in interruptible(frame.f_code)):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace
