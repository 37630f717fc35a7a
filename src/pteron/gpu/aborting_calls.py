"""The functions of wgpu's library that end the process where they fail, each behind one here.

Whoever calls them has looked at all that can be known: no buffer is freed or mapped, the device is open. What
remains is a device that its driver loses meanwhile. The C library survives that (`Encoder.guarded`), and it
is a DeviceLost; from Python alone the process ends.
"""

from __future__ import annotations

from itertools import starmap
from typing import Any

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu.encode import FAILED, encoder
from pteron.gpu.native import ffi, lib
from pteron.gpu.spoiled import survived

_COMMAND_BUFFERS = ffi.typeof("WGPUCommandBuffer[]")
_INDEX = ffi.typeof("WGPUSubmissionIndex *")
_SUBMIT, _POLL = ffi.addressof(lib, "wgpuQueueSubmitForIndex"), ffi.addressof(lib, "wgpuDevicePoll")
_MAP_ALIGNMENT = 8  # bytes: where a mapped range may begin


def submit(queue: Any, command_buffer: Any, numbers: list[int]) -> None:
    """Hand a command buffer to the queue; the list gets the submission's number, or FAILED, whatever Ctrl-C
    interrupts."""
    buffers = ffi.new(_COMMAND_BUFFERS, [command_buffer])
    guarded = encoder().guarded
    if guarded is None:
        numbers.extend(starmap(lib.wgpuQueueSubmitForIndex, [(queue, 1, buffers)]))
    else:
        numbers.extend(starmap(guarded, [(_SUBMIT, queue, 1, buffers)]))
        if numbers[0] == FAILED:
            raise _failed()


def poll(device: Any, wait: bool, submission: int | None) -> None:
    """Let callbacks happen; where asked to wait, after all work or that of one submission."""
    index = ffi.NULL if submission is None else ffi.new(_INDEX, submission)
    guarded = encoder().guarded
    if guarded is None:
        lib.wgpuDevicePoll(device, wait, index)
    elif guarded(_POLL, device, wait, index) == FAILED:
        raise _failed()


def mapped_range(buffer: Any, whole: int, offset: int, size: int) -> Any:
    """Where a part of a mapped buffer of so many bytes lies on the host."""
    if offset % _MAP_ALIGNMENT or size % 4 or not 0 <= offset <= offset + size <= whole:
        raise DeviceError(f"bytes {offset:,} to {offset + size:,} cannot be read of {whole:,}")
    return lib.wgpuBufferGetConstMappedRange(buffer._internal, offset, size)


def _failed() -> DeviceLost:
    """The error for what was survived on this thread."""
    survived()
    return DeviceLost("wgpu's library failed")
