"""GPU time of compute passes and of the steps in them, where the adapter can tell it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError
from pteron.gpu.command_buffer import CommandBuffer
from pteron.gpu.commands import Replay, Step
from pteron.gpu.device import Device
from pteron.gpu.handles import begin, finish
from pteron.gpu.native import ffi, lib, wgpu

STAMPS_MAX = 4096  # of one query set, by WebGPU
_INSIDE = "timestamp-query-inside-passes"


class _Encoded(CommandBuffer):
    """Commands that a function writes to an encoder."""

    def __init__(self, device: Device, write: Callable[[Any], None]) -> None:
        super().__init__(device, [])
        self._write = write

    def encode(self, finished: list[Any]) -> None:
        encoder = begin(self._device.handle._internal)
        self._write(encoder)
        finish(encoder, finished)


class _Stamps:
    """Room for timestamps of the GPU's clock."""

    def __init__(self, device: Device, count: int) -> None:
        if "timestamp-query" not in device.adapter.features:
            raise DeviceError(f"{device.adapter} offers no timestamps")
        self._device = device
        self._count = count
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        with device.doing(f"preparing to take {count} timestamps"):
            self.queries = device.handle.create_query_set(type="timestamp", count=count)
            self._resolved = device.handle.create_buffer(label="times", size=8 * count, usage=usage)
        self._nanoseconds = float(lib.wgpuQueueGetTimestampPeriod(device.handle.queue._internal))

    def pass_descriptor(self, begin: int, end: int) -> tuple[Any, Any]:
        """What begins a pass that stamps its begin and its end; both have to live until it has begun."""
        writes = {
            "querySet": self.queries._internal,
            "beginningOfPassWriteIndex": begin,
            "endOfPassWriteIndex": end,
        }
        timestamps = ffi.new("WGPUPassTimestampWrites *", writes)
        return ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": timestamps}), timestamps

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """The first `count` stamps, from the first on; waits for them."""

        def resolve(encoder: Any) -> None:
            stamps, resolved = self.queries._internal, self._resolved._internal
            lib.wgpuCommandEncoderResolveQuerySet(encoder, stamps, 0, count, resolved, 0)

        _Encoded(self._device, resolve).submit()
        ticks = np.frombuffer(self._device.read(self._resolved, 8 * count), np.uint64)
        since: npt.NDArray[np.float64] = (ticks - ticks.min()).astype(np.float64)
        return since * (self._nanoseconds * 1e-9)


class PassTimer:
    """Two timestamps for each of up to `passes` compute passes."""

    def __init__(self, device: Device, passes: int) -> None:
        self._stamps = _Stamps(device, 2 * passes)
        self._count = 0
        self._descriptors: list[Any] = []  # of the passes so far
        self._passes = passes

    def next_pass(self) -> Any:
        """The descriptor of the next pass, or NULL: passes beyond the timer's size go untimed."""
        if self._count == self._passes:
            return ffi.NULL
        descriptor, timestamps = self._stamps.pass_descriptor(2 * self._count, 2 * self._count + 1)
        self._descriptors.append((descriptor, timestamps))  # a descriptor does not hold what it points at
        self._count += 1
        return descriptor

    def seconds(self) -> list[float]:
        """The time of each pass so far; waits for them."""
        if self._count == 0:
            return []
        stamps = self._stamps.seconds(2 * self._count).reshape(-1, 2)
        self._count = 0
        self._descriptors.clear()
        return [float(end - begin) for begin, end in stamps]


class StepTimer:
    """Runs the steps of a replay with timestamps between stretches of them.

    All are in one pass where the adapter stamps inside passes: the time of a stretch is then from the end of
    what came before it to its own end. Elsewhere each stretch has its own pass. A stamp keeps what follows it
    from beginning before what came before has ended, so stretches take longer than what is in them would
    without the stamps between: by how much, longer stretches of the same steps tell.
    """

    def __init__(self, device: Device, steps: int, *, inside: bool | None = None) -> None:
        self._device = device
        can = _INSIDE in device.adapter.features
        self.is_inside = can if inside is None else inside
        if self.is_inside and not can:
            raise DeviceError(f"{device.adapter} takes no timestamps inside passes")
        self._most = min(steps, STAMPS_MAX // 2 - 1)  # stretches of one command buffer
        self._stamps = _Stamps(device, 2 * self._most + 1)

    def run(self, replay: Replay, ends: Sequence[int] | None = None) -> list[float]:
        """Seconds of the stretches of steps that end before these indices, the last of which is the number of
        steps; by default each step is one. Waits for them."""
        if ends is None:
            ends = range(1, len(replay.steps) + 1)
        stretches = [replay.steps[begin:end] for begin, end in pairwise((0, *ends))]
        found: list[float] = []
        with self._device.lock:
            self._device.check_there([replay])
            for first in range(0, len(stretches), self._most):
                found += self._run(stretches[first : first + self._most])
        return found

    def _run(self, stretches: Sequence[Sequence[Step]]) -> list[float]:
        """The same for as many as have stamps."""
        write = self._stamp_inside if self.is_inside else self._stamp_passes
        _Encoded(self._device, partial(write, stretches)).submit()
        if self.is_inside:
            stamps = self._stamps.seconds(len(stretches) + 1)
            return list(map(float, stamps[1:] - stamps[:-1]))
        stamps = self._stamps.seconds(2 * len(stretches))
        return list(map(float, stamps[1::2] - stamps[::2]))

    def _stamp_inside(self, stretches: Sequence[Sequence[Step]], encoder: Any) -> None:
        opened = _begin(encoder, ffi.NULL)
        queries = self._stamps.queries._internal
        lib.wgpuComputePassEncoderWriteTimestamp(opened, queries, 0)
        for index, steps in enumerate(stretches):
            _dispatch(opened, steps)
            lib.wgpuComputePassEncoderWriteTimestamp(opened, queries, index + 1)
        lib.wgpuComputePassEncoderEnd(opened)

    def _stamp_passes(self, stretches: Sequence[Sequence[Step]], encoder: Any) -> None:
        for index, steps in enumerate(stretches):
            descriptor, _timestamps = self._stamps.pass_descriptor(2 * index, 2 * index + 1)
            opened = _begin(encoder, descriptor)
            _dispatch(opened, steps)
            lib.wgpuComputePassEncoderEnd(opened)


def _begin(encoder: Any, descriptor: Any) -> Any:
    return ffi.gc(
        lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor), lib.wgpuComputePassEncoderRelease
    )


def _dispatch(opened: Any, steps: Sequence[Step]) -> None:
    for pipeline, group, x, y, z in steps:
        lib.wgpuComputePassEncoderSetPipeline(opened, pipeline)
        lib.wgpuComputePassEncoderSetBindGroup(opened, 0, group, 0, ffi.NULL)
        lib.wgpuComputePassEncoderDispatchWorkgroups(opened, x, y, z)
