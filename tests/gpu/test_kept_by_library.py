"""Command buffers that wgpu's library keeps. It never frees one that was not submitted, nor what that names:
so none is left behind where Ctrl-C lands, nor where a program is left to the garbage collector."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from golden import read_cases
from interruption import InterruptedAt
from wgpu.backends.wgpu_native._helpers import generate_report

import pteron
from pteron import Device

SOURCES = str(Path(pteron.__file__).parent)


def kept() -> int:
    return int(generate_report()["hub"]["commandBuffers"]["kept"])


@pytest.mark.usefixtures("encoding")
@pytest.mark.parametrize("calls", [2, 3])
def test_ctrl_c_at_every_point_of_a_call(calls: int, programs: Path, device: Device) -> None:
    """Of one that is recorded and submitted, and the next recorded after it; and of that next one."""
    (case, *_) = read_cases(programs / "mutable_buffer.npz")
    gc.collect()
    before, point, is_reached = kept(), 0, True
    with pteron.load(programs / "mutable_buffer.pte", device=device) as program:
        while is_reached:
            point += 1
            sequence = program.sequence()
            method = sequence["forward"]
            for _ in range(calls - 1):
                method(*case.inputs)
            with suppress(KeyboardInterrupt), InterruptedAt(point, SOURCES) as interrupted:
                method(*case.inputs)
            sequence.close()
            assert kept() == before, interrupted.where
            is_reached = interrupted.is_reached
    assert point > 200


def test_ctrl_c_while_a_device_reads_and_clears(device: Device) -> None:
    buffer = device.create_buffer(64, "a buffer")
    before, point, is_reached = kept(), 0, True
    while is_reached:
        point += 1
        with suppress(KeyboardInterrupt), InterruptedAt(point, SOURCES) as interrupted:
            device.clear(buffer)
            device.read(buffer, 64)
        assert kept() == before, interrupted.where
        is_reached = interrupted.is_reached
    assert point > 100
    device.free(buffer)


def test_a_program_that_nobody_closes(programs: Path, device: Device) -> None:
    gc.collect()
    before = kept()
    program = pteron.load(programs / "mutable_buffer.pte", device=device)
    for _ in range(3):
        program["forward"](np.ones((3, 5), np.float32))
    assert kept() == before + 1  # the next call
    del program
    gc.collect()
    assert kept() == before
