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
from weakref import finalize

from pteron.dtypes import DType
from pteron.errors import DeviceError
from pteron.gpu import Buffer, Commands, Copy, Device, Readback, Recording, Replay
from pteron.host.tensors import Fetch, HostResult, View
from pteron.runtime.outputs import Output, Wanted, aligned
from pteron.runtime.staging import Input, InputUpload

_PARKED = 4  # calls that wait for their plan to come back
_STAGINGS = 4  # whose commands a call keeps: as many as are in use by turns


@dataclass(frozen=True, slots=True)
class Call:
    """A run of a graph that only has to be submitted, and handles of what it will give."""

    commands: Commands
    outputs: list[Output]
    bytes_read: int


class RepeatableCall:
    """A call that gives the host tensors alone, to be made any number of times. From one time to the next
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

    def call(self) -> Call:
        """The next time."""
        readback = self._device.readback(self._size) if self._count else None
        fetch = Fetch(readback, self._count) if readback else None
        outputs: list[Output] = [
            HostResult(fetch, part[2], part[0].shape, part[1], part[0].storage) if fetch and part else None
            for part in self._fetched
        ]
        return Call(self._commands_into(readback), outputs, self.bytes_read)

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


@dataclass(slots=True)
class _PlanVariant:
    """Calls of one plan that give the same outputs."""

    recording: Recording
    wanted: Sequence[Wanted | None]
    next: Call | None = None
    again: RepeatableCall | None = None  # where they can be recorded ahead
    landing: InputUpload | None = None  # where the next may be as simple as the last

    @property
    def waiting(self) -> Call | None:
        """The next call, where it was prepared and nobody has made it."""
        return None if self.next is None or self.next.commands.is_spent else self.next


_PlanVariants: TypeAlias = dict[tuple[Recording, tuple[Wanted | None, ...]], _PlanVariant]


class PrerecordedCalls:
    """Calls, each good for one plan and one choice of outputs. Their owner holds the device's lock, and drops
    them before the states that they are bound to are freed.

    wgpu's library never frees a command buffer that is not submitted. So a call stays here until it is,
    whoever took it; one that the next call has no use for is kept until its plan comes back; where as many
    are kept as may be, or their plans were forgotten, no more are made; and in the end all that are left are
    submitted for nothing.
    """

    def __init__(self) -> None:
        self._kinds: _PlanVariants = {}
        self._last: _PlanVariant | None = None  # what the last call was, one of these
        self._end = finalize(self, _submit_all, self._kinds)
        self._end.atexit = False

    def take(self, recording: Recording, wanted: Sequence[Wanted | None]) -> tuple[Call | None, bool]:
        """The call that was recorded for this plan and these outputs, if there is one, and whether they are
        those of the last call, or one is there."""
        last = self._last
        if last is not None and recording is last.recording and wanted == last.wanted:
            return last.waiting, True
        call = self._turn_to(recording, wanted).waiting
        return call, call is not None

    def _turn_to(self, recording: Recording, wanted: Sequence[Wanted | None]) -> _PlanVariant:
        """Keep what was recorded for other plans, and take up again what was for this one."""
        self._last = last = self._kinds.setdefault(
            (recording, tuple(wanted)), _PlanVariant(recording, wanted)
        )
        for key in [key for key, kind in self._kinds.items() if kind is not last and not kind.waiting]:
            del self._kinds[key]
        return last

    def expect(self, again: RepeatableCall, landing: InputUpload | None) -> None:
        """Be ready for further calls like the last."""
        if self._last is not None:
            self._last.again, self._last.landing = again, landing

    def record(self) -> None:
        """Record the next call like the last, where that is possible and there is room for it."""
        last = self._last
        if last is None or last.again is None:
            return
        last.next = None  # it was made
        if len(self._kinds) <= _PARKED:
            try:
                last.next = call = last.again.call()
                call.commands.record()
            except DeviceError:
                pass  # what is wrong with it is said when it is asked for

    def drop(self, *, is_open: bool) -> None:
        """Forget what was recorded. Where all that it is bound to is still there, it runs: the states that it
        changes are about to be freed."""
        if is_open:
            _submit_all(self._kinds)
        self._last = None
        self._kinds.clear()
        self._end.detach()

    def land(self, device: Device, inputs: Sequence[Input]) -> tuple[Recording, int] | None:
        """Bring inputs like the last call's into place: its plan, and the bytes sent."""
        if self._last is None or self._last.landing is None:
            return None
        sent = self._last.landing.upload(device, inputs)
        return None if sent is None else (self._last.recording, sent)


def _submit_all(kinds: _PlanVariants) -> None:
    for kind in kinds.values():
        if kind.waiting and kind.waiting.commands.is_ready:
            with suppress(DeviceError):
                kind.waiting.commands.submit()
