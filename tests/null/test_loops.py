"""Loops: kernels state theirs, and only what would exceed an adapter's limit takes more dispatches."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kernel_files import FILES, kernel
from sketch import Sketch, plan_at

from pteron.graph import Value
from pteron.ops import Target
from pteron.ops.row_layout import split
from pteron.wgsl import compose

GPU = Target(is_cpu=False, subgroup_size=32)
LIMITED = Target(is_cpu=True, loop_max=65535)


def test_a_kernel_with_a_loop_states_it() -> None:
    for name in sorted(FILES):
        module = compose(kernel(name))
        if re.search(r"\b(for|while|loop) *[({]", module.source):
            assert module.statements.loops is not None, name


@pytest.mark.parametrize(
    "name", ["linear_thread", "matmul_thread", "matvec", "matmul_tiled", "matmul_merge", "q4_merge"]
)
def test_products_compile_without_bounds_checks(name: str) -> None:
    assert not compose(kernel(name)).bounds_checks


def launches(target: Target, name: str, shape: tuple[int, ...], *rest: Value) -> int:
    sketch = Sketch()
    x, out = sketch.tensor(*shape), sketch.tensor(*shape)
    sketch.node(name, x, *rest, out)
    return len(plan_at(sketch.prepare([x], [out], target)).launches)


@pytest.mark.parametrize("length", [1, 4096, 128_256, 1 << 20])
@pytest.mark.parametrize("target", [GPU, replace(GPU, subgroup_size=0)])
def test_a_gpu_takes_one_dispatch(length: int, target: Target) -> None:
    assert launches(target, "aten._softmax.default", (1, length), 1, False) == 1
    assert launches(target, "aten.sum.dim_IntList", (length, 1), (1,), True, None) == 1


@pytest.mark.parametrize(("depth", "count"), [(4096, 1), (40_000, 2)])
def test_a_deep_product_in_parts(depth: int, count: int) -> None:
    for target, expected in ((LIMITED, count), (replace(LIMITED, is_cpu=False), count), (GPU, 1)):
        sketch = Sketch()
        x, y, out = sketch.tensor(5, depth), sketch.tensor(depth, 3), sketch.tensor(5, 3)
        sketch.node("aten.mm.default", x, y, out)
        assert len(plan_at(sketch.prepare([x, y], [out], target)).launches) == expected


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 4096, 100_003])
@pytest.mark.parametrize("most", [1, 2, 3, 10, 4096])
def test_split(length: int, most: int) -> None:
    parts, span = split(length, most)
    assert 1 <= span <= most
    assert (parts - 1) * span < max(length, 1) <= max(parts * span, 1)
