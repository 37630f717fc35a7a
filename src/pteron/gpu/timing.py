"""GPU time of compute passes and their launches, measured by timestamps if the adapter supports them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError
from pteron.gpu.commands import BoundLaunch, Replay
from pteron.gpu.device import Device
from pteron.gpu.library import BufferUsage
from pteron.gpu.submit import submit_written

STAMPS_MAX = 4096  # of one query set, by WebGPU
_INSIDE = "timestamp-query-inside-passes"


class _Stamps:
    """A query set of timestamps, and the buffer they are resolved to."""

    def __init__(self, device: Device, count: int) -> None:
        if "timestamp-query" not in device.adapter.features:
            raise DeviceError(f"{device.adapter} offers no timestamps")
        self._device = device
        self._count = count
        usage = BufferUsage.QUERY_RESOLVE | BufferUsage.COPY_SRC
        with device.translate_errors(f"preparing to take {count} timestamps"):
            self.queries = device.handle.create_query_set(type="timestamp", count=count)
            self._resolved = device.handle.create_buffer(label="times", size=8 * count, usage=usage)
        self._nanoseconds = device.library.timestamp_nanoseconds(device.queue)

    def pass_descriptor(self, begin: int, end: int) -> tuple[Any, Any]:
        """The descriptor of a pass with timestamps at its start and end, and what it points to: keep both
        until the pass has begun."""
        writes = {
            "querySet": self.queries._internal,
            "beginningOfPassWriteIndex": begin,
            "endOfPassWriteIndex": end,
        }
        ffi = self._device.library.ffi
        timestamps = ffi.new("WGPUPassTimestampWrites *", writes)
        return ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": timestamps}), timestamps

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """The first `count` timestamps, relative to the earliest; waits for them."""

        def resolve(encoder: Any) -> None:
            stamps, resolved = self.queries._internal, self._resolved._internal
            self._device.library.lib.wgpuCommandEncoderResolveQuerySet(encoder, stamps, 0, count, resolved, 0)

        submit_written(self._device, resolve)
        ticks = np.frombuffer(self._device.read(self._resolved, 8 * count), np.uint64)
        since: npt.NDArray[np.float64] = (ticks - ticks.min()).astype(np.float64)
        return since * (self._nanoseconds * 1e-9)


class PassTimer:
    """Times up to `passes` compute passes by two timestamps each."""

    def __init__(self, device: Device, passes: int) -> None:
        self._stamps = _Stamps(device, 2 * passes)
        self._null = device.library.ffi.NULL
        self._count = 0
        self._descriptors: list[Any] = []  # of the passes so far
        self._passes = passes

    def next_pass(self) -> Any:
        """The descriptor of the next pass, or NULL: passes beyond the timer's size are not timed."""
        if self._count == self._passes:
            return self._null
        descriptor, timestamps = self._stamps.pass_descriptor(2 * self._count, 2 * self._count + 1)
        self._descriptors.append((descriptor, timestamps))  # cffi does not keep what a descriptor points to
        self._count += 1
        return descriptor

    def seconds(self) -> list[float]:
        """The time of each pass since the last call; waits for them."""
        if self._count == 0:
            return []
        stamps = self._stamps.seconds(2 * self._count).reshape(-1, 2)
        self._count = 0
        self._descriptors.clear()
        return [float(end - begin) for begin, end in stamps]


class LaunchTimer:
    """Times stretches of a replay: runs of consecutive launches with a timestamp after each.

    If the adapter supports timestamps inside passes, all stretches are in one pass, and a stretch's time
    starts at the end of the previous one. Otherwise each stretch has its own pass. A timestamp is a barrier:
    short stretches take longer in total than one long stretch of the same launches.
    """

    def __init__(self, device: Device, launches: int, *, inside: bool | None = None) -> None:
        self._device = device
        can = _INSIDE in device.adapter.features
        self.is_inside = can if inside is None else inside
        if self.is_inside and not can:
            raise DeviceError(f"{device.adapter} has no timestamps inside passes")
        self._most = min(launches, STAMPS_MAX // 2 - 1)  # stretches of one command buffer
        self._stamps = _Stamps(device, 2 * self._most + 1)

    def run(self, replay: Replay, ends: Sequence[int] | None = None) -> list[float]:
        """Run the replay, wait, and return the seconds of each stretch. `ends` has, for each stretch, the
        index after its last launch; by default every launch is a stretch."""
        if ends is None:
            ends = range(1, len(replay.launches) + 1)
        stretches = [replay.launches[begin:end] for begin, end in pairwise((0, *ends))]
        found: list[float] = []
        with self._device.lock:
            self._device.check_buffers([replay])
            for first in range(0, len(stretches), self._most):
                found += self._run(stretches[first : first + self._most])
        return found

    def _run(self, stretches: Sequence[Sequence[BoundLaunch]]) -> list[float]:
        """`run` for as many stretches as one query set can time."""
        write = self._stamp_inside if self.is_inside else self._stamp_passes
        submit_written(self._device, partial(write, stretches))
        if self.is_inside:
            stamps = self._stamps.seconds(len(stretches) + 1)
            return list(map(float, stamps[1:] - stamps[:-1]))
        stamps = self._stamps.seconds(2 * len(stretches))
        return list(map(float, stamps[1::2] - stamps[::2]))

    def _stamp_inside(self, stretches: Sequence[Sequence[BoundLaunch]], encoder: Any) -> None:
        library = self._device.library
        opened, stamp = (
            library.begin_pass(encoder, library.ffi.NULL),
            library.lib.wgpuComputePassEncoderWriteTimestamp,
        )
        queries = self._stamps.queries._internal
        stamp(opened, queries, 0)
        for index, launches in enumerate(stretches):
            library.encode_launches(opened, launches)
            stamp(opened, queries, index + 1)
        library.lib.wgpuComputePassEncoderEnd(opened)

    def _stamp_passes(self, stretches: Sequence[Sequence[BoundLaunch]], encoder: Any) -> None:
        library = self._device.library
        for index, launches in enumerate(stretches):
            descriptor, _timestamps = self._stamps.pass_descriptor(2 * index, 2 * index + 1)
            opened = library.begin_pass(encoder, descriptor)
            library.encode_launches(opened, launches)
            library.lib.wgpuComputePassEncoderEnd(opened)
