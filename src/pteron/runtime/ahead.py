"""A sequence's next call, recorded while the one before it runs.

A command buffer takes as long to make as many a small graph takes to run, and can be submitted but once.
Inputs and live parameters lie in buffers, so commands that run a plan over the same states are the same at
every call: where a call repeats the one before it, the next is expected to repeat it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.gpu import Recorded, Recording
from pteron.runtime.tensors import GpuTensor, HostResult, View

Output: TypeAlias = GpuTensor | HostResult | int | None


@dataclass(frozen=True, slots=True)
class Call:
    """A run of a graph that only has to be submitted, and handles of what it will give."""

    recorded: Recorded
    views: Sequence[View | int]  # where the outputs lie until they are brought away
    outputs: list[Output]
    bytes_read: int


class Ahead:
    """At most one call, good for one plan and one choice of outputs. Its owner holds the device's lock, and
    drops it before the states that it is bound to are freed."""

    def __init__(self) -> None:
        self._recording: Recording | None = None  # of the last call
        self._wanted: Sequence[object] = ()
        self._next: Call | None = None

    def take(self, recording: Recording, wanted: Sequence[object]) -> tuple[Call | None, bool]:
        """The call that was recorded for this plan and these outputs, if there is one, and whether they are
        those of the last call."""
        call, self._next = self._next, None
        if recording is self._recording and wanted == self._wanted:
            return call, True
        self._recording, self._wanted = recording, wanted
        return None, False

    def keep(self, call: Call) -> None:
        """Hold a call until it is asked for."""
        self._next = call

    def drop(self) -> None:
        """Forget what was recorded."""
        self._recording = self._next = None
