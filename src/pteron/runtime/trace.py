"""The times of a method's calls, instruction by instruction and launch by launch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pteron.plan import Launch

METHOD, DELEGATE, OPERATOR = "Method::execute", "DELEGATE_CALL", "OPERATOR_CALL"  # as ExecuTorch names them


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """A call, an instruction of it, or a launch of a delegate's call. Times are in nanoseconds."""

    name: str
    start: int
    end: int
    instruction: int | None = None
    launch: Launch | None = None
    delegate: int | None = None  # of a launch: the delegate's index in the method


@dataclass(slots=True)
class TracedRun:
    """One call of a method."""

    method: str
    events: list[TracedEvent] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """The calls of a program since it was loaded. Calls that are traced wait for the GPU."""

    runs: list[TracedRun] = field(default_factory=list)
    _instruction: int | None = None
    _delegate: int | None = None

    def begin(self, method: str) -> int:
        """Start a call; returns the time."""
        self.runs.append(TracedRun(method))
        return time.perf_counter_ns()

    def enter(self, instruction: int, delegate: int | None = None) -> int:
        """Start an instruction; returns the time."""
        self._instruction, self._delegate = instruction, delegate
        return time.perf_counter_ns()

    def leave(self, name: str, start: int, *, is_call: bool = False) -> None:
        """End an instruction, or a whole call."""
        instruction = None if is_call else self._instruction
        self.runs[-1].events.append(TracedEvent(name, start, time.perf_counter_ns(), instruction))

    def add_launches(self, start: int, launches: Sequence[Launch], seconds: Sequence[float]) -> None:
        """The launches of the current instruction, one after the other from a time on."""
        for launch, spent in zip(launches, seconds, strict=True):
            end = start + round(spent * 1e9)
            name = launch.module.kernel.name
            event = TracedEvent(name, start, end, self._instruction, launch, self._delegate)
            self.runs[-1].events.append(event)
            start = end
