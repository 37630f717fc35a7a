"""Row kernels by subgroups compile on every device that has subgroups, and run at the width it has."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from arguments import tensor
from check import check_op
from kernel_files import FILES, kernel
from measured_case import Case
from measured_cases import CASES

from pteron import Device
from pteron.ops import Target
from pteron.ops.rows import SUBGROUP, shared_rows
from pteron.plan import collect
from pteron.wgsl import Kernel, Module, compose

ROW_KERNELS = {name for name, path in FILES.items() if "//! use rows\n" in path.read_text("utf-8")}
# Where there are subgroups, attention_decode.wgsl takes the place of attention_split.wgsl.
USED = ROW_KERNELS - {"attention_split"}
BY_ROWS = [case for case in CASES if "hardware" in case.kinds and USED & set(case.kernels.split())]
NAN, INF = math.nan, math.inf
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
    return subgroup_width(subgroups)


@cache
def subgroup_width(device: Device) -> int:
    """Invocations of a subgroup, as the device itself tells."""
    handle: Any = device.handle
    buffer = device.create_buffer(4, "width")
    compute = {"module": handle.create_shader_module(code=WIDTH), "entry_point": "main"}
    pipeline = handle.create_compute_pipeline(layout="auto", compute=compute)
    entries = [{"binding": 0, "resource": {"buffer": buffer}}]
    encoder = handle.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, handle.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    run.dispatch_workgroups(1)
    run.end()
    handle.queue.submit([encoder.finish()])
    return int(np.frombuffer(device.read(buffer, 4), np.uint32)[0])


@pytest.fixture
def by_subgroups(subgroups: Device, width: int, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target whose rows are shared by subgroups, their width being that of the device."""
    if SUBGROUP % width:
        pytest.skip(f"subgroups of {width} do not divide rows of {SUBGROUP} lanes")

    def composed(kernel: Kernel) -> Module:
        is_shared = ("use_rows", "rows_subgroup") in kernel.declarations
        return compose(kernel.specialise(SUBGROUP=width) if is_shared else kernel)

    monkeypatch.setattr(collect, "compose", composed)
    monkeypatch.setattr(Target, "check_runs_on", lambda *_: None)
    return replace(subgroups.target, is_cpu=False, subgroup_size=SUBGROUP)


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("name", sorted(ROW_KERNELS))
def test_a_row_kernel_compiles(name: str, lanes: int, subgroups: Device) -> None:
    target = replace(subgroups.target, is_cpu=False, subgroup_size=SUBGROUP)
    layout = shared_rows(target, lanes, max(1, 64 // lanes))
    assert layout["use_rows"] == "rows_subgroup"
    subgroups.pipeline(compose(kernel(name, **layout)))


@pytest.mark.parametrize("case", BY_ROWS, ids=lambda case: f"{case.name}-{case.kernels}")
def test_an_operator(case: Case, by_subgroups: Target) -> None:
    case.check(by_subgroups)


@pytest.mark.parametrize("length", [5, 40, 100, 700])
def test_a_nan_wins_over_every_number(length: int, by_subgroups: Target) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (6, length))
    places = [(1, length // 2), (2, 0), (3, -1), (4, 1), (5, 2)]
    for place, value in zip(places, (NAN, NAN, NAN, INF, -INF), strict=True):
        x[place] = value
    x[3, 0] = INF
    check_op("aten.amax.default", tensor(values=x), [1], False, target=by_subgroups)
    check_op("aten._softmax.default", tensor(values=x), -1, False, target=by_subgroups)


def test_the_largest_of_integers(by_subgroups: Target) -> None:
    x = tensor("S", 77, low=-100, high=-3)
    check_op("aten.amax.default", x, [1], False, dtype="i32", target=by_subgroups)
