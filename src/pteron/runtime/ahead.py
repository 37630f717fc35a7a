"""A sequence's next call, recorded while the one before it runs.

A command buffer takes as long to make as many a small graph takes to run, and can be submitted but once.
Inputs and live parameters lie in buffers, so commands that run a plan over the same states are the same at
every call: where a call repeats the one before it, the next is expected to repeat it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from pteron.dtypes import DType
from pteron.errors import DeviceError
from pteron.gpu import Buffer, Commands, Copy, Device, Readback, Recorded, Recording, Replay
from pteron.runtime.outputs import Output, Wanted, aligned
from pteron.runtime.staging import Input, Landing
from pteron.runtime.tensors import Fetch, HostResult, View

_PARKED = 4  # calls that wait for their plan to come back
_STAGINGS = 4  # whose commands a call keeps: as many as are in use by turns


_Kind: TypeAlias = tuple[Recording, tuple[Wanted | None, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """A run of a graph that only has to be submitted, and handles of what it will give."""

    recorded: Recorded
    outputs: list[Output]
    bytes_read: int


class Again:
    """A call that gives the host tensors alone, to be recorded any number of times. From one time to the next
    only the staging buffer changes that its outputs are read from."""

    def __init__(
        self, device: Device, replay: Replay, outputs: Iterable[tuple[View | int, Wanted | None]]
    ) -> None:
        self._device = device
        self._replay = replay
        self._fetched: list[tuple[View, DType, int] | None] = []  # with its place in the staging buffer
        self.bytes_read = self._size = 0
        for view, want in outputs:
            if want is None:
                self._fetched.append(None)
                continue
            assert isinstance(view, View)
            self._fetched.append((view, want.dtype, self._size))
            self.bytes_read += view.nbytes
            self._size += aligned(view.nbytes)
        self._count = sum(part is not None for part in self._fetched)
        self._commands: dict[Buffer | None, Commands] = {}

    def record(self) -> Call:
        """The next time."""
        readback = self._device.readback(self._size) if self._count else None
        fetch = Fetch(readback, self._count) if readback else None
        outputs: list[Output] = [
            HostResult(fetch, part[2], part[0].shape, part[1], part[0].storage) if fetch and part else None
            for part in self._fetched
        ]
        return Call(self._commands_into(readback).record(), outputs, self.bytes_read)

    def _commands_into(self, readback: Readback | None) -> Commands:
        staging = readback.staging if readback else None
        if staging not in self._commands:
            if len(self._commands) == _STAGINGS:
                self._commands.clear()
            copies = [
                Copy(part[0].buffer, staging, part[0].nbytes, part[2]) for part in self._fetched if part
            ]
            self._commands[staging] = Commands(self._device, [self._replay, *copies])
        return self._commands[staging]


class Ahead:
    """Calls, each good for one plan and one choice of outputs. Their owner holds the device's lock, and drops
    them before the states that they are bound to are freed.

    wgpu's library never frees a command buffer that is not submitted. So one that the next call has no use
    for is kept until its plan comes back; where as many are kept as may be, or their plans were forgotten, no
    more are made; and in the end all that are left are submitted for nothing.
    """

    def __init__(self) -> None:
        self._parked: dict[_Kind, tuple[Call, Again | None, Landing | None]] = {}
        self._recording: Recording | None = None  # of the last call
        self._wanted: Sequence[Wanted | None] = ()
        self._next: Call | None = None
        self.again: Again | None = None  # where calls of this kind can be recorded ahead
        self.landing: Landing | None = None  # of the last call, where the next may be as simple

    def take(self, recording: Recording, wanted: Sequence[Wanted | None]) -> tuple[Call | None, bool]:
        """The call that was recorded for this plan and these outputs, if there is one, and whether they are
        those of the last call, or one is there."""
        is_same = recording is self._recording and wanted == self._wanted
        if not is_same:
            self._turn_to(recording, wanted)
        call, self._next = self._next, None
        return call, is_same or call is not None

    @property
    def has_room(self) -> bool:
        """Whether another call may be recorded."""
        return len(self._parked) < _PARKED

    def _turn_to(self, recording: Recording, wanted: Sequence[Wanted | None]) -> None:
        """Park what was recorded for another plan, and take up again what was for this one."""
        self._park()
        self._recording, self._wanted = recording, wanted
        parked = self._parked.pop((recording, tuple(wanted)), (None, None, None))
        self._next, self.again, self.landing = parked

    def keep(self, call: Call) -> None:
        """Hold a call until it is asked for."""
        call.recorded.keep()
        self._next = call

    def drop(self, *, is_open: bool) -> None:
        """Forget what was recorded. Where all that it is bound to is still there, it runs: the states that it
        changes are about to be freed."""
        self._park()
        while self._parked:
            _, (call, _, _) = self._parked.popitem()
            if is_open:
                with suppress(DeviceError):
                    call.recorded.submit()
        self._recording = self._next = self.again = self.landing = None

    def _park(self) -> None:
        if self._next is not None and self._recording is not None:
            self._parked[self._recording, tuple(self._wanted)] = self._next, self.again, self.landing
        self._next = None

    def land(self, device: Device, inputs: Sequence[Input]) -> tuple[Recording, int] | None:
        """Bring inputs like the last call's into place: its plan, and the bytes sent."""
        if self.landing is None or self._recording is None:
            return None
        sent = self.landing.upload(device, inputs)
        return None if sent is None else (self._recording, sent)
