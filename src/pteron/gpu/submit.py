"""Commands -> the queue: copies and replays in order, in one command buffer.

All replays that follow one another share one compute pass: the driver orders their dispatches by the
buffers they touch, at a tenth of the cost of a pass for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

from pteron.errors import DeviceError
from pteron.gpu.commands import Command, Replay
from pteron.gpu.device import Device
from pteron.gpu.encode import Encoder, Operation, encoder
from pteron.gpu.forking import when_forked
from pteron.gpu.native import ffi
from pteron.gpu.timing import PassTimer


class Recorded:
    """A finished command buffer, which can be submitted once. wgpu's library ends the process where a device
    is lost, a buffer was freed, or one is mapped: so all of that is looked at before."""

    def __init__(self, device: Device, handle: Any, operations: Sequence[Operation]) -> None:
        self._device = device
        self._handle = handle
        self._operations = operations

    def submit(self) -> int:
        """Run it without waiting; the submission's number, by which it can be waited for. Ctrl-C while its
        buffers are looked at is heeded once it runs: wgpu's library never frees what is not submitted."""
        with self._device.lock:
            handle, self._handle = self._handle, None
            if handle is None:
                raise DeviceError("commands were submitted twice")
            try:
                self._check_there()
            except KeyboardInterrupt:
                self._check_there()
                self._device.submit(handle)
                raise
            return self._device.submit(handle)

    def _check_there(self) -> None:
        self._device.check_there(*(command for command, _ in self._operations))

    def keep(self) -> None:
        """To be called where it waits for a later call: a process forked meanwhile must not release it."""
        _kept.add(self)

    def abandon(self) -> None:
        """Leave the command buffer to the process that this one was forked from."""
        handle, self._handle = self._handle, None
        if handle is not None:
            ffi.gc(handle, None)


_kept: WeakSet[Recorded] = WeakSet()


def _abandon_all() -> None:
    for recorded in list(_kept):
        recorded.abandon()


when_forked(_abandon_all)


class Commands:
    """Commands that are recorded once or many times; they hold what they name."""

    def __init__(self, device: Device, commands: Iterable[Command], timer: PassTimer | None = None) -> None:
        self._device = device
        self._operations = list(_operations(commands, timer))
        self._encoder: Encoder | None = None
        self._packed: Any = None

    def record(self) -> Recorded:
        """Encode them. What is wrong with them is raised here, since an invalid command buffer would end the
        process when it is submitted."""
        device, current = self._device.handle._internal, encoder()
        if current is not self._encoder:
            self._encoder, self._packed = current, current.pack(self._operations)
        handle = self._device.checked("recording commands", current.record, device, self._packed)
        return Recorded(self._device, handle, self._operations)


def record(device: Device, commands: Iterable[Command], timer: PassTimer | None = None) -> Recorded:
    """Encode commands for one time."""
    return Commands(device, commands, timer).record()


def submit(device: Device, commands: Iterable[Command], timer: PassTimer | None = None) -> int:
    """Run commands without waiting for them; the submission's number, by which it can be waited for."""
    return record(device, commands, timer).submit()


def submit_early(device: Device, commands: Iterable[Command]) -> int:
    """Run commands as `submit` does, but let the GPU begin while the rest is being recorded: for calls that
    somebody waits for. Interrupted, it may have run some of them and not the others."""
    number, held = 0, list[Command]()
    for command in commands:
        parts = command.parts if isinstance(command, Replay) else [command]
        for part in parts[:-1]:
            number = submit(device, [*held, part])
            held.clear()
        held.append(parts[-1])
    return submit(device, held) if held else number


def _operations(commands: Iterable[Command], timer: PassTimer | None) -> Iterator[Operation]:
    """Those that do anything, and what the passes that they open are begun with."""
    is_open = False
    for command in commands:
        if isinstance(command, Replay):
            if command.steps:
                yield command, timer.next_pass() if timer and not is_open else ffi.NULL
                is_open = True
        elif command.size:
            yield command, ffi.NULL
            is_open = False
