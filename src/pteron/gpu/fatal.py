"""The functions of wgpu's library that end the process where they fail, each behind one here.

Whoever calls them has looked at all that can be known: no buffer is freed or mapped, the device is open. What
remains is a device that its driver loses meanwhile. The C library survives that (`Encoder.survive`), and it
is a DeviceLost; from Python alone the process ends.
"""

from __future__ import annotations

from typing import Any

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu.encode import encoder
from pteron.gpu.native import ffi
from pteron.gpu.spoiled import survived

_COMMAND_BUFFERS = ffi.typeof("WGPUCommandBuffer[]")
_INDEX = ffi.typeof("WGPUSubmissionIndex *")
_POINTER = ffi.typeof("void *")
_MAP_ALIGNMENT = 8  # bytes: where a mapped range may begin


def submit(queue: Any, command_buffer: Any) -> int:
    """Hand a command buffer to the queue; the submission's number."""
    return _call("wgpuQueueSubmitForIndex", queue, 1, ffi.new(_COMMAND_BUFFERS, [command_buffer]))


def poll(device: Any, wait: bool, submission: int | None) -> None:
    """Let callbacks happen; where asked to wait, after all work or that of one submission."""
    index = ffi.NULL if submission is None else ffi.new(_INDEX, submission)
    _call("wgpuDevicePoll", device, int(wait), index)


def mapped_range(buffer: Any, offset: int, size: int) -> Any:
    """Where a part of a mapped buffer lies on the host."""
    if offset % _MAP_ALIGNMENT or size % 4 or not 0 <= offset <= offset + size <= buffer.size:
        raise DeviceError(f"bytes {offset:,} to {offset + size:,} cannot be read of {buffer.size:,}")
    return ffi.cast(_POINTER, _call("wgpuBufferGetConstMappedRange", buffer._internal, offset, size))


def _call(function: str, *arguments: Any) -> int:
    result = encoder().survive(function, *arguments)
    if result is None:
        survived()
        raise DeviceLost(f"{function} failed")
    return result
