"""Row kernels by subgroups compile on every device that has subgroups. Where those are 32 wide they run, too:
there the tests of operators choose them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_files import FILES, kernel

from pteron import Device
from pteron.ops.rows import SUBGROUP, shared_rows
from pteron.wgsl import compose

ROW_KERNELS = [name for name in sorted(FILES) if "//! use rows\n" in FILES[name].read_text("utf-8")]


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("name", ROW_KERNELS)
def test_a_row_kernel_by_subgroups_compiles(name: str, lanes: int, device: Device) -> None:
    if "subgroup" not in device.adapter.features:
        pytest.skip(f"{device.adapter} has no subgroups")
    target = replace(device.target, is_cpu=False, subgroup_size=SUBGROUP)
    layout = shared_rows(target, lanes, max(1, 64 // lanes))
    assert layout["use_rows"] == "rows_subgroup"
    device.pipeline(compose(kernel(name, **layout)))
