"""Faults on demand: the n-th step of work on a device fails, before or after it is done."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
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
