"""Commands -> the queue: copies and replays in order, in one command buffer.

All replays that follow one another share one compute pass: the driver orders their dispatches by the
buffers they touch, at a tenth of the cost of a pass for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.gpu.device import Buffer, Device
from pteron.gpu.native import errors_as_device_error, ffi, lib
from pteron.gpu.recording import Replay, Step
from pteron.gpu.timing import PassTimer


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes to move between two buffers, rounded up to whole words."""

    source: Buffer
    target: Buffer
    size: int
    target_offset: int = 0
    source_offset: int = 0


Command: TypeAlias = Copy | Replay


def submit(device: Device, commands: Iterable[Command], timer: PassTimer | None = None) -> int:
    """Run commands without waiting for them; the submission's number, by which it can be waited for."""
    handle = device.handle
    with errors_as_device_error("recording commands"):
        encoder = handle.create_command_encoder()
        compute: Any = None
        for command in commands:
            if isinstance(command, Replay):
                if compute is None and command.steps:
                    compute = encoder.begin_compute_pass(**timer.next_pass() if timer else {})
                _encode(compute, command.steps)
            elif command.size:
                if compute is not None:  # copies cannot stand inside a pass
                    compute.end()
                    compute = None
                size = -(-command.size // 4) * 4
                encoder.copy_buffer_to_buffer(
                    command.source, command.source_offset, command.target, command.target_offset, size
                )
        if compute is not None:
            compute.end()
        # An invalid command buffer aborts the process at submit; finish raises first.
        commands_finished = encoder.finish()
    buffers = ffi.new("WGPUCommandBuffer[]", [commands_finished._internal])
    return int(lib.wgpuQueueSubmitForIndex(handle.queue._internal, 1, buffers))


def _encode(compute: Any, steps: list[Step]) -> None:
    """Raw calls on handles fetched beforehand: a third of the cost of wgpu's objects."""
    if not steps:
        return
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    encoder, null = compute._internal, ffi.NULL
    for pipeline, group, x, y, z in steps:
        set_pipeline(encoder, pipeline)
        set_bind_group(encoder, 0, group, 0, null)
        dispatch(encoder, x, y, z)
