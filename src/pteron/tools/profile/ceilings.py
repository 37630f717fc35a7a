"""The highest rates of an adapter, measured in less than two seconds and cached on disk.

Bandwidth: a kernel (on software adapters a copy command) copies a buffer larger than the caches; its bytes
count as read and as written. A launch can exceed it with data in caches, or if the adapter reads faster than
it writes. Arithmetic: chains of f32 multiply-adds in registers, the faster of `fma` and `*` with `+`. A
launch can exceed it with integers or half floats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from pteron.folders import cache_folder
from pteron.gpu import Copy, Device, Replay, submit
from pteron.graph import Node
from pteron.ops import Dispatch, Scratch
from pteron.ops.live import Trace
from pteron.plan import Executable
from pteron.plan.collect import Collector
from pteron.runtime.session import Counters, Session
from pteron.tools.local_adapter import write_cache
from pteron.tools.profile.report import Ceilings
from pteron.tools.profile.timing import clock_of
from pteron.wgsl import Kernel, compose

_VERSION = 2  # of the measurement
_MOVED_BYTES, _MOVED_BYTES_CPU = 1 << 28, 1 << 25  # of one buffer: larger than caches
_INVOCATIONS, _INVOCATIONS_CPU = 1 << 20, 1 << 14
_SECONDS = 0.5  # for each of the three measurements
_LEAST_SECONDS = 5e-3  # per submission: clocks resolve that to a few percent
_REPEATS_MAX = 1 << 12


def ceilings_of(device: Device, *, remeasure: bool = False) -> Ceilings:
    """The adapter's ceilings, from the cache if possible."""
    path = _path(device)
    found = None if remeasure else _read(path)
    if found is None:
        found = measure_ceilings(device)
        write_cache(path, [found.bytes_per_second, found.operations_per_second])
    return found


def measure_ceilings(device: Device) -> Ceilings:
    moved = _copied(device) if device.target.is_cpu else _streamed(device)
    return Ceilings(moved, max(_arithmetic(device, is_fused=is_fused) for is_fused in (True, False)))


def launch_seconds(device: Device) -> float:
    """The time of a launch that does almost nothing, in a pass of many."""
    kernel = Kernel("pteron.tools.profile", "stream")
    return _best_seconds(device, Dispatch(kernel, x=Scratch(4), out=Scratch(4), quads=1, threads=1))


def _streamed(device: Device) -> float:
    """Bytes per second that a kernel reads and writes."""
    floats = min(_MOVED_BYTES, device.target.binding_bytes_max) // 4
    kernel, quads = Kernel("pteron.tools.profile", "stream"), floats // 4
    moving = Dispatch(kernel, x=Scratch(floats), out=Scratch(floats), quads=quads, threads=quads)
    return 8 * floats / _best_seconds(device, moving)


def _copied(device: Device) -> float:
    """Bytes per second of a copy command on a software adapter, whose kernels are much slower than memory."""
    size = min(_MOVED_BYTES_CPU, device.target.binding_bytes_max)
    source, target = (device.create_buffer(size, "a ceiling's copy") for _ in range(2))

    def seconds() -> float:
        device.wait()
        started = time.perf_counter()
        submit(device, [Copy(source, target, size)])
        device.wait()
        return time.perf_counter() - started

    try:
        return 2 * size / _best(seconds)
    finally:
        device.free(source)
        device.free(target)


def _arithmetic(device: Device, *, is_fused: bool) -> float:
    """Operations per second of chains of multiply-adds."""
    count = _INVOCATIONS_CPU if device.target.is_cpu else _INVOCATIONS
    kernel = Kernel("pteron.tools.profile", "chains")
    computing = Dispatch(
        kernel, IS_FUSED=is_fused, x=Scratch(count), out=Scratch(count), count=count, threads=count
    )
    of_chains = compose(computing.kernel).constants
    operations = 2 * 4 * of_chains["CHAINS"] * of_chains["REPEATS"] * of_chains["LOOPS"]
    return operations * count / _best_seconds(device, computing)


def _best_seconds(device: Device, dispatch: Dispatch) -> float:
    """The least time of a launch, from enough repetitions for the clock's resolution."""
    session = _session(device, dispatch)
    try:
        _, replay = session.recorded((), session.states())
        clock = clock_of(device, 1)
        repeats = 1
        while clock.whole(_repeated(replay, repeats)) < _LEAST_SECONDS and repeats < _REPEATS_MAX:
            repeats *= 2
        return _best(lambda: clock.whole(_repeated(replay, repeats))) / repeats
    finally:
        session.close()


def _repeated(replay: Replay, count: int) -> Replay:
    return Replay(replay.launches * count, replay.kept)


def _best(seconds: Callable[[], float]) -> float:
    """The least of the measurements of half a second."""
    end = time.perf_counter() + _SECONDS
    found = [seconds()]
    while time.perf_counter() < end:
        found.append(seconds())
    return min(found)


def _session(device: Device, dispatch: Dispatch) -> Session:
    """A plan of one launch over scratch memory."""
    collector = Collector(device.target)
    collector.add(Node(0, "ceiling", ()), [dispatch])
    plan = collector.finish({}, {}, Trace({}), ())
    nothing = Collector(device.target).finish({}, {}, Trace({}), ())
    executable = Executable("ceilings", device.target, (), (), (), (), {}, nothing, {(): [plan]})
    return Session(executable, device, Counters())


def _path(device: Device) -> Path:
    adapter = device.adapter
    name = f"{adapter.name} {adapter.backend} {adapter.driver} {_VERSION}"
    readable = "".join(letter if letter.isalnum() else "-" for letter in name)
    return cache_folder() / "ceilings" / f"{readable}.json"


def _read(path: Path) -> Ceilings | None:
    try:
        bandwidth, operations = json.loads(path.read_text("utf-8"))
        return Ceilings(float(bandwidth), float(operations)) if min(bandwidth, operations) > 0 else None
    except (OSError, ValueError, TypeError):  # not measured yet, or a damaged file
        return None
