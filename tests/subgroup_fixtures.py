"""Fixtures of tests that run kernels by subgroups, at whatever width the device has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pteron import Device
from pteron.families.quantized.tiles import LANES
from pteron.ops import Target
from pteron.plan import collect
from pteron.wgsl import Kernel, Module, compose

WIDTH = """
@group(0) @binding(0) var<storage, read_write> width: u32;
@compute @workgroup_size(64) fn main(@builtin(subgroup_size) size: u32) { width = size; }
"""


@pytest.fixture(scope="session")
def subgroups(device: Device) -> Device:
    if "subgroup" not in device.adapter.features:
        pytest.skip(f"{device.adapter} has no subgroups")
    return device


@pytest.fixture(scope="session")
def width(subgroups: Device) -> int:
    """The subgroup size, as a shader on the device reports it."""
    handle: Any = subgroups.handle
    buffer = subgroups.create_buffer(4, "width")
    enable = "enable subgroups;" if subgroups.library.name == "Dawn" else ""  # wgpu rejects this line
    compute = {"module": handle.create_shader_module(code=enable + WIDTH), "entry_point": "main"}
    pipeline = handle.create_compute_pipeline(layout="auto", compute=compute)
    entries = [{"binding": 0, "resource": {"buffer": buffer}}]
    encoder = handle.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, handle.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    run.dispatch_workgroups(1)
    run.end()
    handle.queue.submit([encoder.finish()])
    return int(np.frombuffer(subgroups.read(buffer, 4), np.uint32)[0])


@pytest.fixture
def own_subgroups(subgroups: Device, width: int, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with subgroups as wide as those of the device, which need not say so."""
    monkeypatch.setattr(Target, "check_runs_on", lambda *_: None)
    return replace(subgroups.target, is_cpu=False, subgroup_size=width)


def skip_if_narrow(target: Target) -> None:
    """Skip where q4_rows cannot run: it exchanges values among LANES neighbours of one subgroup."""
    if target.subgroup_size < LANES:
        pytest.skip(f"subgroups of {target.subgroup_size} are narrower than the {LANES} lanes of q4_rows")


@pytest.fixture(params=["software", "hardware", "subgroups"])
def anywhere(request: pytest.FixtureRequest, device: Device) -> Target:
    """Every kind of device, with the buffers that each has."""
    if request.param == "subgroups":
        own: Target = request.getfixturevalue("own_subgroups")
        return replace(own, buffers_max=Target().buffers_max)
    is_cpu = request.param == "software"
    return replace(device.target, is_cpu=is_cpu, subgroup_size=0, buffers_max=Target().buffers_max)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels of all plans made in a test."""
    found = set()

    def composed(kernel: Kernel) -> Module:
        found.add(kernel.name)
        return compose(kernel)

    monkeypatch.setattr(collect, "compose", composed)
    return found


@pytest.fixture
def few(own_subgroups: Target, launched: set[str]) -> Iterator[Target]:
    """A target with subgroups, on which the kernel must be launched."""
    yield own_subgroups
    assert "q4_digits" in launched
