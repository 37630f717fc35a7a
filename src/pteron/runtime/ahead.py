"""A sequence's next call, recorded while the one before it runs.

A command buffer takes as long to make as many a small graph takes to run, and can be submitted but once.
Inputs and live parameters lie in buffers, so commands that run a plan over the same states are the same at
every call: where a call repeats the one before it, the next is expected to repeat it too.

wgpu's library never frees what a command buffer holds that was finished and not submitted. So one that is not
asked for at once is put aside until it is, and at the end all that are left are submitted for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pteron.dtypes import DType
from pteron.errors import DeviceError
from pteron.gpu import Buffer, Commands, Copy, Device, Readback, Recorded, Recording, Replay
from pteron.runtime.outputs import Output, Wanted, aligned
from pteron.runtime.staging import Input, Landing
from pteron.runtime.tensors import Fetch, HostResult, View

_STAGINGS = 4  # whose commands a call keeps: as many as are in use by turns
_PUT_ASIDE_MAX = 4  # calls of other kinds than the last
_DROPPED_MAX = 16  # calls that may have been recorded in vain; where there were more, calls do not repeat


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
    """At most one call for each of a few plans and choices of outputs. Its owner holds the device's lock, and
    drops them before the states that they are bound to are freed."""

    def __init__(self) -> None:
        self._recording: Recording | None = None  # of the last call
        self._wanted: Sequence[Wanted | None] = ()
        self._next: Call | None = None
        self._put_aside: dict[tuple[Recording | None, tuple[Wanted | None, ...]], Call] = {}
        self._dropped = 0
        self._again: Again | None = None
        self.landing: Landing | None = None  # of the last call, where the next may be as simple

    @property
    def again(self) -> Again | None:
        """Where calls of the last one's kind can be recorded ahead."""
        return self._again if self._dropped < _DROPPED_MAX else None

    @again.setter
    def again(self, again: Again | None) -> None:
        self._again = again

    def take(self, recording: Recording, wanted: Sequence[Wanted | None]) -> tuple[Call | None, bool]:
        """The call that was recorded for this plan and these outputs, if there is one, and whether they are
        those of the last call."""
        if recording is self._recording and wanted == self._wanted:
            call, self._next = self._next, None
            return call, True
        self._put_by()
        self._recording, self._wanted, self._again, self.landing = recording, wanted, None, None
        return self._put_aside.pop((recording, tuple(wanted)), None), False

    def keep(self, call: Call) -> None:
        """Hold a call until it is asked for."""
        self._next = call

    def drop(self, *, is_open: bool) -> None:
        """Forget what was recorded. Where all that it is bound to is still there, it runs for nothing: the
        states that it changes are about to be freed."""
        self._put_by()
        while self._put_aside:
            _, call = self._put_aside.popitem()
            if is_open:
                with suppress(DeviceError):
                    call.recorded.submit()
        self._recording = self._again = self.landing = None

    def _put_by(self) -> None:
        """Put the next call aside, in the place of the oldest where there are many."""
        call, self._next = self._next, None
        if call is None:
            return
        if len(self._put_aside) == _PUT_ASIDE_MAX:
            del self._put_aside[next(iter(self._put_aside))]
            self._dropped += 1
        self._put_aside[self._recording, tuple(self._wanted)] = call

    def land(self, device: Device, inputs: Sequence[Input]) -> tuple[Recording, int] | None:
        """Bring inputs like the last call's into place: its plan, and the bytes sent."""
        if self.landing is None or self._recording is None:
            return None
        sent = self.landing.upload(device, inputs)
        return None if sent is None else (self._recording, sent)
