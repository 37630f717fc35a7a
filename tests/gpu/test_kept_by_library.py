"""Ctrl-C wherever Python heeds it: wgpu's library keeps no command buffer that nobody can submit any more.

It never frees one that was not submitted, and with it all buffers that it names.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import read_cases
from interruption import InterruptedAt

import pteron
from pteron import Device, StateLost
from pteron.gpu.encode import encoder
from pteron.gpu.native import ffi, lib, wgpu

SOURCES = str(Path(pteron.__file__).parent)


def kept() -> int:
    """Command buffers that wgpu's library holds."""
    report = ffi.new("WGPUGlobalReport *")
    lib.wgpuGenerateReport(wgpu.backends.wgpu_native._helpers.get_wgpu_instance(), report)
    return int(report.hub.commandBuffers.numKeptFromUser)


def interrupt_everywhere(work: Callable[[], object], then: Callable[[], object], step: int = 1) -> int:
    """Interrupt some work at every point, or some of them; what there is to do after each. How many points."""
    point = 1
    while True:
        with suppress(KeyboardInterrupt), InterruptedAt(point, SOURCES) as interrupted:
            work()
        if not interrupted.is_reached:
            return point
        then()
        point += step


@pytest.mark.usefixtures("encoding")
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_call_that_is_interrupted(calls: int, programs: Path, device: Device) -> None:
    """The first of its kind, one that the next is recorded after, and one that was itself recorded ahead."""
    (case, *_) = read_cases(programs / "mutable_buffer.npz")
    before = kept()
    points = 0
    while True:
        points += 1
        with pteron.load(programs / "mutable_buffer.pte", device=device) as program:
            method = program["forward"]
            for _ in range(calls - 1):
                method(*case.inputs)
            with suppress(KeyboardInterrupt), InterruptedAt(points, SOURCES) as interrupted:
                method(*case.inputs)
        del program, method
        if kept() != before:
            print(points, interrupted.where, kept()-before); before = kept()
        if not interrupted.is_reached:
            break
    assert points > 100
    print(points)
