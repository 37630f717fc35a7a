"""GPU time of compute passes, where the adapter can tell it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.errors import DeviceError
from pteron.gpu.buffers import Buffer
from pteron.gpu.command_buffer import CommandBuffer
from pteron.gpu.device import Device
from pteron.gpu.handles import begin, finish
from pteron.gpu.native import ffi, lib, wgpu


class _Resolving(CommandBuffer):
    """Timestamps of a query set, written to a buffer."""

    def __init__(self, device: Device, queries: Any, count: int, target: Buffer) -> None:
        super().__init__(device, [])
        self._resolved = queries, count, target

    def encode(self, finished: list[Any]) -> None:
        queries, count, target = self._resolved
        encoder = begin(self._device.handle._internal)
        lib.wgpuCommandEncoderResolveQuerySet(encoder, queries._internal, 0, count, target._internal, 0)
        finish(encoder, finished)


class PassTimer:
    """Two timestamps for each of up to `passes` compute passes."""

    def __init__(self, device: Device, passes: int) -> None:
        if "timestamp-query" not in device.adapter.features:
            raise DeviceError(f"{device.adapter} offers no timestamps")
        self._device = device
        self._count = 0
        self._descriptors: list[Any] = []  # of the passes so far
        self._passes = passes
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        with device.doing(f"preparing to time {passes} passes"):
            self._queries = device.handle.create_query_set(type="timestamp", count=2 * passes)
            self._resolved = device.handle.create_buffer(label="times", size=16 * passes, usage=usage)
        self._nanoseconds = float(lib.wgpuQueueGetTimestampPeriod(device.handle.queue._internal))

    def next_pass(self) -> Any:
        """The descriptor of the next pass, or NULL: passes beyond the timer's size go untimed."""
        if self._count == self._passes:
            return ffi.NULL
        writes = {
            "querySet": self._queries._internal,
            "beginningOfPassWriteIndex": 2 * self._count,
            "endOfPassWriteIndex": 2 * self._count + 1,
        }
        timestamps = ffi.new("WGPUPassTimestampWrites *", writes)
        descriptor = ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": timestamps})
        self._descriptors.append((descriptor, timestamps))  # a descriptor does not hold what it points at
        self._count += 1
        return descriptor

    def seconds(self) -> list[float]:
        """The time of each pass so far; waits for them."""
        if self._count == 0:
            return []
        _Resolving(self._device, self._queries, 2 * self._count, self._resolved).submit()
        ticks = np.frombuffer(self._device.read(self._resolved, 16 * self._count), np.uint64).reshape(-1, 2)
        self._count = 0
        self._descriptors.clear()
        return [float(end - begin) * self._nanoseconds * 1e-9 for begin, end in ticks]
