"""Properties of an adapter that are measured, not reported by it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import numpy as np

from pteron.gpu import Device, submit
from pteron.gpu.single_launch import launch_once
from pteron.system import free_memory
from pteron.tools.profile.ceilings import ceilings_of, launch_seconds
from pteron.wgsl import Kernel, compose

_SUBMISSIONS = 20


@dataclass(frozen=True, slots=True)
class Probes:
    """Times in seconds, rates per second; None where nothing was measured."""

    loop_limit: int | None  # iterations after which a loop ends silently; 0: none was found
    submission_seconds: float | None = None  # an empty submission, until the host knows that it is done
    launch_seconds: float | None = None
    bytes_per_second: float | None = None
    operations_per_second: float | None = None  # f32
    host_bytes_free: int | None = None  # of the machine; GPUs do not report theirs


def probe(device: Device, *, timing: bool = True) -> Probes:
    """Measure a device, in about three seconds; without `timing`, only the limit of loops."""
    limit, free = loop_limit(device), free_memory()
    if not timing:
        return Probes(limit, host_bytes_free=free)
    ceilings = ceilings_of(device)
    return Probes(
        limit,
        _submission(device),
        launch_seconds(device),
        ceilings.bytes_per_second,
        ceilings.operations_per_second,
        free,
    )


def loop_limit(device: Device) -> int:
    """The iterations after which a loop of this adapter ends; 0 if half a million run."""
    kernel = Kernel("pteron.tools.doctor", "loops")
    found = launch_once(device, kernel, np.ones(1, np.uint32), 8)
    count = int(np.frombuffer(found, np.uint32)[0])
    return 0 if count == compose(kernel).constants["ITERATIONS"] else count


def _submission(device: Device) -> float:
    times = []
    for _ in range(_SUBMISSIONS):
        started = time.perf_counter()
        submit(device, [])
        device.wait()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
