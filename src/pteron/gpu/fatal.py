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
from pteron.gpu.native import address, ffi, lib
from pteron.gpu.spoiled import survived

_COMMAND_BUFFERS = ffi.typeof("WGPUCommandBuffer[]")
_INDEX = ffi.typeof("WGPUSubmissionIndex *")
_SUBMIT, _POLL = (address(ffi.addressof(lib, name)) for name in ("wgpuQueueSubmitForIndex", "wgpuDevicePoll"))
_MAP_ALIGNMENT = 8  # bytes: where a mapped range may begin


def submit(queue: Any, command_buffer: Any, numbers: list[int]) -> None:
    """Hand a command buffer to the queue; the list gets the submission's number, or FAILED, whatever Ctrl-C
    interrupts."""
    buffers = ffi.new(_COMMAND_BUFFERS, [command_buffer])
    guarded = encoder().guarded
    if guarded is None:
        numbers.extend(starmap(lib.wgpuQueueSubmitForIndex, [(queue, 1, buffers)]))
    else:
        numbers.extend(starmap(guarded, [(_SUBMIT, address(queue), 1, address(buffers))]))
        _survived(numbers[0])


def poll(device: Any, wait: bool, submission: int | None) -> None:
    """Let callbacks happen; where asked to wait, after all work or that of one submission."""
    index = ffi.NULL if submission is None else ffi.new(_INDEX, submission)
    guarded = encoder().guarded
    if guarded is None:
        lib.wgpuDevicePoll(device, wait, index)
    else:
        _survived(guarded(_POLL, address(device), wait, address(index) if index else 0))


def mapped_range(buffer: Any, offset: int, size: int) -> Any:
    """Where a part of a mapped buffer lies on the host."""
    if offset % _MAP_ALIGNMENT or size % 4 or not 0 <= offset <= offset + size <= buffer.size:
        raise DeviceError(f"bytes {offset:,} to {offset + size:,} cannot be read of {buffer.size:,}")
    return lib.wgpuBufferGetConstMappedRange(buffer._internal, offset, size)


def _survived(result: int) -> int:
    """What a guarded function gave."""
    if result == FAILED:
        survived()
        raise DeviceLost("wgpu's library failed")
    return result
