"""Commands -> the queue: copies and replays in order, in one command buffer.

All replays that follow one another share one compute pass: the driver orders their dispatches by the
buffers they touch, at a tenth of the cost of a pass for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from pteron.gpu.command_buffer import CommandBuffer
from pteron.gpu.commands import Command, Copy, Replay
from pteron.gpu.encode import Encoder, Operation, encoder
from pteron.gpu.handles import begin, finish
from pteron.gpu.native import ffi, lib
from pteron.gpu.open_device import OpenDevice


class Timer(Protocol):
    """What times passes."""

    def next_pass(self) -> Any:
        """The descriptor of the next pass, or NULL where it goes untimed."""


class Commands(CommandBuffer):
    """Commands in one command buffer; they hold what they name."""

    def __init__(self, device: OpenDevice, commands: Iterable[Command], timer: Timer | None = None) -> None:
        self._operations = list(_operations(commands, timer))
        super().__init__(device, [command for command, _ in self._operations])
        self._encoder: Encoder | None = None
        self._packed: Any = None

    def encode(self, finished: list[Any]) -> None:
        current = encoder()
        if current is not self._encoder:
            self._encoder, self._packed = current, current.pack(self._operations)
        current.record(self._device.handle._internal, self._packed, finished)


def record(device: OpenDevice, commands: Iterable[Command], timer: Timer | None = None) -> Commands:
    """Commands that are recorded, and wait for their submission."""
    recorded = Commands(device, commands, timer)
    recorded.record()
    return recorded


def submit(device: OpenDevice, commands: Iterable[Command], timer: Timer | None = None) -> int:
    """Run commands without waiting for them; the submission's number, by which it can be waited for."""
    return Commands(device, commands, timer).submit()


def submit_early(device: OpenDevice, commands: Iterable[Command]) -> int:
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


class _Clearing(CommandBuffer):
    def __init__(self, device: OpenDevice, buffer: Any, start: int, size: int) -> None:
        super().__init__(device, [Copy(buffer, buffer, 0)])
        self._buffer, self._start, self._size = buffer, start, size

    def encode(self, finished: list[Any]) -> None:
        encoder = begin(self._device.handle._internal)
        lib.wgpuCommandEncoderClearBuffer(encoder, self._buffer._internal, self._start, self._size)
        finish(encoder, finished)


def clear(device: OpenDevice, buffer: Any, start: int, size: int) -> None:
    """Fill a part of a buffer with zeros, before any command submitted later; words are filled as a whole."""
    _Clearing(device, buffer, start, size).submit()


def _operations(commands: Iterable[Command], timer: Timer | None) -> Iterator[Operation]:
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
