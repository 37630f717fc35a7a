"""Commands -> the queue: copies and replays in order, in one command buffer.

Consecutive replays share one compute pass, which costs a tenth of one pass per replay; the driver orders
their dispatches by the buffers they use. wgpu-native aborts the process if a submitted command buffer is
invalid or uses a freed or mapped buffer. So recording errors and buffer states are checked before a
submission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from pteron.errors import DeviceLost
from pteron.gpu.commands import Command, Copy, Replay
from pteron.gpu.encode import CommandEncoder, Operation, encoder
from pteron.gpu.library import Report
from pteron.gpu.open_device import OpenDevice

_RECORDING = "recording commands"


class Timer(Protocol):
    """Times compute passes."""

    def next_pass(self) -> Any:
        """The descriptor of the next pass, or NULL if that pass is not timed."""


class Commands:
    """Commands that can be submitted any number of times. `record` prepares the next submission ahead of
    time. The object keeps alive everything that the commands use.

    With `in_parts` they are several command buffers: the GPU starts the first while the rest is encoded,
    which lowers latency. After an interrupt, some parts may be submitted and others not.
    """

    def __init__(
        self,
        device: OpenDevice,
        commands: Iterable[Command],
        timer: Timer | None = None,
        *,
        in_parts: bool = False,
    ) -> None:
        self._device = device
        null = device.library.ffi.NULL
        self._parts = [
            list(_operations(part, timer, null)) for part in (_parts(commands) if in_parts else [commands])
        ]
        self._commands = [command for part in self._parts for command, _ in part]
        self._report = device.library.report(_RECORDING)
        self._encoder: CommandEncoder | None = None
        self._packed: list[Any] = []
        self._recorded: list[Any] = []  # the command buffers of the next submission

    @property
    def is_recorded(self) -> bool:
        """Whether the next submission is recorded."""
        return bool(self._recorded)

    def record(self) -> None:
        """Record the commands for the next `submit`; invalid commands are a DeviceError."""
        if not self._recorded:
            device, current = self._device, self._choose()
            handle = device.handle._internal
            self._recorded = [
                checked(device, self._report, current.record, handle, packed) for packed in self._packed
            ]

    def submit(self) -> int:
        """Run the commands without waiting. Returns the submission's number, which can be waited for."""
        with self._device.lock:
            return self.submit_locked()

    def submit_locked(self) -> int:
        """`submit` without taking the device's lock: the caller is a worker thread, and the thread that waits
        for it holds the lock."""
        device = self._device
        device.check_buffers(self._commands)
        device.submissions += 1
        handle, queue = device.handle._internal, device.queue
        recorded, self._recorded = self._recorded, []
        if recorded:
            return [device.library.submit(queue, part) for part in recorded][-1]
        current, report = self._choose(), self._report
        numbers: list[int] = [
            checked(device, report, current.submit, handle, queue, packed, report) for packed in self._packed
        ]
        return numbers[-1]

    def _choose(self) -> CommandEncoder:
        current = encoder(self._device.library)
        if current is not self._encoder:
            self._encoder, self._packed = current, [current.pack(part) for part in self._parts]
        return current


def record(device: OpenDevice, commands: Iterable[Command], timer: Timer | None = None) -> Commands:
    """Commands that are recorded and not submitted yet."""
    recorded = Commands(device, commands, timer)
    recorded.record()
    return recorded


def submit(
    device: OpenDevice, commands: Iterable[Command], timer: Timer | None = None, *, in_parts: bool = False
) -> int:
    """Run commands without waiting. Returns the submission's number, which can be waited for."""
    return Commands(device, commands, timer, in_parts=in_parts).submit()


def submit_written(device: OpenDevice, write: Callable[[Any], None], uses: Iterable[Command] = ()) -> int:
    """Submit the commands that a function writes to a wgpu command encoder; `uses` names the buffers to
    check."""

    def encode() -> Any:
        encoder = device.library.begin_encoder(device.handle._internal)
        write(encoder)
        return device.library.finish(encoder)

    with device.lock:
        device.check_buffers(uses)
        device.submissions += 1
        report = device.library.report(_RECORDING)
        return device.library.submit(device.queue, checked(device, report, encode))


def clear(device: OpenDevice, buffer: Any, start: int, size: int) -> None:
    """Fill a part of a buffer, in whole words, with zeros before any command that is submitted later."""

    def write(encoder: Any) -> None:
        device.library.lib.wgpuCommandEncoderClearBuffer(encoder, buffer._internal, start, size)

    submit_written(device, write, [Copy(buffer, buffer, 0)])


def checked(device: OpenDevice, report: Report, call: Callable[..., Any], *arguments: object) -> Any:
    """Make raw wgpu calls and return their result; raises an error that they report."""
    try:
        return device.library.checked(report, call, *arguments)
    except DeviceLost as error:
        raise device.mark_lost(report.name) from error


def _parts(commands: Iterable[Command]) -> list[list[Command]]:
    """The commands, cut where replays are."""
    parts: list[list[Command]] = [[]]
    for command in commands:
        first, *rest = command.parts if isinstance(command, Replay) else [command]
        parts[-1].append(first)
        parts += [[part] for part in rest]
    return parts


def _operations(commands: Iterable[Command], timer: Timer | None, null: Any) -> Iterator[Operation]:
    """The commands without empty ones, each with the descriptor of the pass it opens."""
    is_open = False
    for command in commands:
        if isinstance(command, Replay):
            if command.launches:
                yield command, timer.next_pass() if timer and not is_open else null
                is_open = True
        elif command.size:
            yield command, null
            is_open = False
