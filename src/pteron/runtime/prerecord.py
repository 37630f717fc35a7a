"""Records a sequence's next call while the current one runs.

Recording a command buffer takes as long as running a small graph, and a command buffer can be submitted only
once. Inputs and live parameters are in buffers, so all calls of one plan at the same live dims, over the same
states, have the same commands. If a call uses the same plan, dims and outputs as the call before it, the next
call is expected to do so too.
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

_PARKED = 4  # prepared calls that are kept for plans other than the last call's
_STAGINGS = 8  # staging buffers that are used in turns, each with its commands


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to be submitted, and its outputs."""

    commands: Commands
    outputs: list[Output]
    bytes_read: int


class RepeatableCall:
    """A call that can be made any number of times, because all its outputs are host tensors. Only the staging
    buffer differs between calls."""

    def __init__(
        self, device: Device, replay: Replay, outputs: Iterable[tuple[View | int, Wanted | None]]
    ) -> None:
        self._device = device
        self._replay = replay
        self._fetched: list[tuple[View, DType, int] | None] = []  # with its offset in the staging buffer
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

    def prepare(self) -> PreparedCall:
        """The next call."""
        readback = self._device.readback(self._size) if self._count else None
        fetch = Fetch(readback, count=self._count) if readback else None
        outputs: list[Output] = [
            HostResult(fetch, part[2], part[0].shape, part[1], part[0].storage) if fetch and part else None
            for part in self._fetched
        ]
        return PreparedCall(self._commands_into(readback), outputs, self.bytes_read)

    def _commands_into(self, readback: Readback | None) -> Commands:
        staging = readback.staging if readback else None
        if staging not in self._commands:
            if len(self._commands) == _STAGINGS:
                self._commands.clear()
            copies = [
                Copy(part[0].buffer, staging, part[0].nbytes, part[2]) for part in self._fetched if part
            ]
            self._commands[staging] = Commands(
                self._device,
                [self._replay, *copies],
                in_parts=self._device.library.encodes_at_submission,
            )
        return self._commands[staging]


@dataclass(slots=True)
class _PlanVariant:
    """Calls of one plan with the same outputs."""

    recording: Recording
    dims: tuple[int, ...]  # the sizes of its live dims
    wanted: Sequence[Wanted | None]
    next: PreparedCall | None = None
    repeatable: RepeatableCall | None = None  # None: calls cannot be prerecorded
    upload: InputUpload | None = None  # None: inputs need checks at every call

    @property
    def prepared(self) -> PreparedCall | None:
        """The next call, if it is recorded and not submitted yet."""
        return self.next if self.next is not None and self.next.commands.is_recorded else None


_PlanVariants: TypeAlias = dict[tuple[Recording, tuple[int, ...], tuple[Wanted | None, ...]], _PlanVariant]


class PrerecordedCalls:
    """Prepared calls of a sequence, each for one plan and one choice of outputs. The owner holds the device's
    lock, and drops the calls before it frees the states that they are bound to.

    wgpu-native never frees a command buffer that is not submitted. So when the plan changes, the prepared
    call is kept until its plan is used again (at most _PARKED calls), and unused calls are submitted at the
    end.
    """

    def __init__(self) -> None:
        self._variants: _PlanVariants = {}
        self._last: _PlanVariant | None = None  # of the last call
        self._end = finalize(self, _submit_all, self._variants)
        self._end.atexit = False

    def take(self, recording: Recording, wanted: Sequence[Wanted | None]) -> tuple[PreparedCall | None, bool]:
        """The prepared call of this plan and these outputs, or None; and whether there is one or this call
        repeats the last one."""
        last = self._last
        if (
            last is not None
            and recording is last.recording
            and recording.dims == last.dims
            and wanted == last.wanted
        ):
            return last.prepared, True
        call = self._switch_to(recording, wanted).prepared
        return call, call is not None

    def _switch_to(self, recording: Recording, wanted: Sequence[Wanted | None]) -> _PlanVariant:
        """The variant of this plan and these outputs; drop others that have no prepared call."""
        self._last = last = self._variants.setdefault(
            (recording, recording.dims, tuple(wanted)), _PlanVariant(recording, recording.dims, wanted)
        )
        for key in [key for key, each in self._variants.items() if each is not last and not each.prepared]:
            del self._variants[key]
        return last

    def expect(self, repeatable: RepeatableCall, upload: InputUpload | None) -> None:
        """Expect the next calls to repeat the last one."""
        if self._last is not None:
            self._last.repeatable, self._last.upload = repeatable, upload

    def record(self) -> None:
        """Record the next call as a repetition of the last, unless too many are recorded."""
        last = self._last
        if last is None or last.repeatable is None:
            return
        last.next = None
        if len(self._variants) <= _PARKED:
            with suppress(DeviceError):  # the next call raises it
                last.next = last.repeatable.prepare()
                last.next.commands.record()

    def drop(self, *, is_open: bool) -> None:
        """Drop all prepared calls. If their buffers still exist, submit the calls, so that wgpu-native frees
        the command buffers. The states are about to be freed, so the results do not matter."""
        if is_open:
            _submit_all(self._variants)
        self._last = None
        self._variants.clear()
        self._end.detach()

    def upload(self, device: Device, inputs: Sequence[Input]) -> tuple[Recording, int] | None:
        """Upload inputs that have the types and shapes of the last call. Returns its plan and the bytes
        uploaded; None for other inputs."""
        if self._last is None or self._last.upload is None:
            return None
        if self._last.recording.dims != self._last.dims:  # another sequence has used the plan at other sizes
            return None
        sent = self._last.upload.upload(device, inputs)
        return None if sent is None else (self._last.recording, sent)


def _submit_all(variants: _PlanVariants) -> None:
    for variant in variants.values():
        if variant.prepared:
            with suppress(DeviceError):
                variant.prepared.commands.submit()
