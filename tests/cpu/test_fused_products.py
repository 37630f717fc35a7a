"""Rewrites around products with 4-bit weights: which calls become one, and which must stay."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fused_layer import (
    ADD,
    CLONE,
    DYNAMIC,
    FUSED,
    FUSED_DYNAMIC,
    GPU,
    LINEAR,
    NORM,
    QPARAMS,
    RELU,
    Layer,
)
from sketch import plan_at

import pteron
from pteron.dtypes import DType
from pteron.graph import Tensor
from pteron.ops import RequirementError, Target, Weight
from pteron.ops.operand import joined
from pteron.passes import prepare
from pteron.plan import Compiled, Launch

pytestmark = pytest.mark.rewrites


def test_a_whole_layer() -> None:
    layer = Layer()
    normed = layer.norm(layer.x)
    q, k, v = layer.product(normed), layer.product(normed, 32), layer.product(normed, 32)
    hidden = layer.apply(ADD, layer.x, layer.view(layer.product(layer.apply(RELU, q)), 1, 3, 64), 1)
    wide = layer.norm(hidden)
    gate, up = layer.product(wide, 128), layer.product(wide, 128)
    gated = layer.gate(layer.view(gate, 1, 3, 128), layer.view(up, 1, 3, 128))
    out = layer.apply(ADD, layer.product(gated), hidden, 1)
    last = layer.product(layer.norm(out), 96)
    assert layer.names(k, v, last) == [FUSED, RELU, FUSED, FUSED, FUSED, FUSED]
    compiled = layer.prepare([layer.x], [k, v, last], GPU)
    assert len(plan_at(compiled).launches) == 6


def test_a_norm_that_others_read_or_see_stays() -> None:
    layer = Layer()
    normed = layer.norm(layer.x)
    out = layer.product(normed)
    assert layer.names(out, layer.apply(RELU, normed)) == [NORM, LINEAR, RELU]
    assert layer.names(out, normed) == [NORM, LINEAR, RELU]


def test_what_stays_apart() -> None:
    """The norm of four products; products of different inputs or group sizes, or with and without a
    bias."""
    layer = Layer()
    normed = layer.norm(layer.x)
    assert layer.names(*(layer.product(normed) for _ in range(4))) == [NORM, *[LINEAR] * 4]
    layer = Layer()
    a, b = layer.product(layer.x), layer.product(layer.apply(RELU, layer.x))
    assert layer.names(a, b) == [LINEAR, RELU, LINEAR]
    layer = Layer()
    assert layer.names(layer.product(layer.x, group=32), layer.product(layer.x, group=64)) == [LINEAR] * 2
    layer = Layer()
    a, b = layer.product(layer.x, bias=layer.constant(64)), layer.product(layer.x)
    assert layer.names(a, b) == [LINEAR, LINEAR]


@pytest.mark.parametrize("columns", [(5, 3), (64, 1, 32)])
def test_products_of_one_input(columns: tuple[int, ...]) -> None:
    layer = Layer()
    outs = [layer.product(layer.x, count, bias=layer.constant(count + 3)) for count in columns]
    assert layer.names(*outs) == [FUSED]


def test_a_product_after_what_follows_another_is_not_moved() -> None:
    """The third product reads x after x has changed."""
    layer = Layer()
    first = layer.product(layer.x)
    layer.node(ADD, layer.x, first, 1, layer.x)
    second = layer.product(layer.x)
    assert layer.names(first, second) == [LINEAR, ADD, LINEAR]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_gate_on_either_side(swapped: bool) -> None:
    layer = Layer()
    gate, up = layer.product(layer.x, 128), layer.product(layer.x, 128)
    out = layer.gate(up, gate) if swapped else layer.gate(gate, up)
    compiled = layer.prepare([layer.x], [out], GPU)
    (call,) = compiled.prepared.each
    weights: Any = call.inputs[3]
    made = [node.args[1] for node in layer.nodes if node.name == LINEAR]
    assert list(weights.items) == (made[::-1] if swapped else made)
    assert len(plan_at(compiled).launches) == 1


def test_gates_that_stay() -> None:
    """Its output is read, or it gates one of three products."""
    layer = Layer()
    gate, up = layer.product(layer.x, 128), layer.product(layer.x, 128)
    assert layer.names(layer.gate(gate, up), up) == [FUSED, "pteron.silu_mul"]
    layer = Layer()
    gate, up, more = (layer.product(layer.x, 128) for _ in range(3))
    assert layer.names(layer.gate(gate, up), more) == [FUSED, "pteron.silu_mul"]


def test_a_sum_that_is_none_of_a_residual() -> None:
    layer = Layer()
    made = layer.product(layer.x)
    total = layer.apply(ADD, made, layer.x, 2)
    assert layer.names(total) == [LINEAR, ADD]
    layer = Layer()
    total = layer.apply(ADD, layer.product(layer.x), layer.constant(1, 3, 64, dtype=DType.I32), 1)
    assert layer.names(total) == [LINEAR, ADD]
    layer = Layer()
    total = layer.apply(ADD, layer.product(layer.x), layer.constant(64), 1)
    assert layer.names(total) == [LINEAR, ADD]
    layer = Layer()
    made = layer.product(layer.x)
    assert layer.names(layer.apply(ADD, made, layer.x, 1), made) == [LINEAR, ADD]
    layer = Layer()
    first, second = layer.product(layer.x), layer.product(layer.x)
    assert layer.names(layer.apply(ADD, first, layer.x, 1), second) == [FUSED, ADD]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_residual_behind_views_of_another_shape(swapped: bool) -> None:
    layer = Layer()
    flat = layer.product(layer.view(layer.x, 3, 64))
    made = layer.apply(CLONE, layer.view(flat, 1, 3, 64), None)
    pair = (layer.x, made) if swapped else (made, layer.x)
    assert layer.names(layer.apply(ADD, *pair, 1)) == [FUSED]


def test_products_of_two_added_up() -> None:
    """One of them takes the other in."""
    layer = Layer()
    total = layer.apply(ADD, layer.product(layer.x), layer.product(layer.apply(RELU, layer.x)), 1)
    assert sorted(layer.names(total)) == sorted([LINEAR, RELU, FUSED])


def test_a_decode_step_of_a_model(models: Path) -> None:
    """Two layers of four products each, and the output layer; norms, gates and residuals are in them."""
    graph = pteron.load(models / "tiny_llama_q4.pte").graphs("forward")[0]
    compiled = Compiled(prepare(graph), GPU)
    symbols = {source.symbol: 5 for source in compiled.prepared.sources}
    launched = [launch.module.kernel.name for launch in compiled.plan(((1, 1), (1,)), symbols).launches]
    assert launched.count("q4_digits") == 2 * 4 + 1
    assert not {"norm", "binary", "q4_matvec"} & {*launched}
    many = [launch.module.kernel.name for launch in compiled.plan(((1, 31), (1,)), symbols).launches]
    assert many.count("q4_rows") == 2 * 4
    assert many.count("norm") == 2 * 2


def test_products_of_int8() -> None:
    """Up to three of one input are one call; scales of more are found once. A residual is part of it."""
    layer = Layer()
    outs = [layer.dynamic(layer.x) for _ in range(3)]
    assert layer.names(*outs) == [FUSED_DYNAMIC]
    other = layer.dynamic(layer.apply(RELU, layer.x))
    assert layer.names(*outs, other) == [FUSED_DYNAMIC, RELU, FUSED_DYNAMIC]
    layer = Layer()
    outs = [layer.dynamic(layer.x) for _ in range(4)]
    assert layer.names(*outs) == [QPARAMS, DYNAMIC, DYNAMIC, DYNAMIC, DYNAMIC]
    layer = Layer()
    total = layer.apply(ADD, layer.x, layer.view(layer.dynamic(layer.x), 1, 3, 64), 1)
    assert layer.names(total) == [FUSED_DYNAMIC]


@pytest.mark.parametrize("columns", [(64,), (64, 32, 32)])
def test_int8_is_made_in_the_launch_of_its_products(columns: tuple[int, ...]) -> None:
    layer = Layer()
    normed = layer.norm(layer.x)
    compiled = layer.prepare([layer.x], [layer.dynamic(normed, count) for count in columns], GPU)
    for rows in (1, 2, 3):
        (launch,) = plan_at(compiled, {layer.x: (1, rows, 64)}).launches
        assert launch.module.kernel.name == "q4_digits"


def test_int8_of_another_kind_stays() -> None:
    layer = Layer()
    others = [layer.dynamic(layer.x, mapping="SYMMETRIC"), layer.dynamic(layer.x, bounds=(-127, 127))]
    assert layer.names(*others) == [QPARAMS, DYNAMIC, QPARAMS, DYNAMIC]
    half = layer.tensor(1, 3, 64, dtype=DType.F16)
    layer.node("aten._to_copy.default", layer.x, *[None] * 6, half)
    assert FUSED_DYNAMIC not in layer.names(layer.dynamic(half))


def test_scales_that_others_see_or_of_what_changed_stay() -> None:
    layer = Layer()
    outs = [layer.dynamic(layer.x) for _ in range(2)]
    seen: Any = layer.nodes[2].args[-1]
    assert layer.names(*outs, seen.items[0]) == [FUSED_DYNAMIC, QPARAMS, DYNAMIC]
    layer = Layer()
    first = layer.dynamic(layer.x)
    layer.node(ADD, layer.x, first, 1, layer.x)
    assert layer.names(first, layer.dynamic(layer.x)) == [FUSED_DYNAMIC, ADD, FUSED_DYNAMIC]


def test_matrices_are_stored_one_below_the_other() -> None:
    layer = Layer()
    outs = [layer.product(layer.x, count) for count in (5, 2)]
    compiled = layer.prepare([layer.x], outs, GPU)
    (launch,) = plan_at(compiled).launches
    weights = {buffer.layout: buffer for buffer in launch.buffers if isinstance(buffer, Weight)}
    words, scales = weights["words"], weights["scales by row"]
    assert (words.bytes, scales.bytes) == (7 * 32, 7 * 2 * 4)
    parts: list[Any] = [node.args[1] for node in layer.nodes]
    assert words.pack().tobytes() == b"".join(bytes(part.constant.data) for part in parts)
    with pytest.raises(ValueError, match="packs"):
        replace(words, count=words.count + 1).pack()
    with pytest.raises(RequirementError, match="one element type"):
        joined([words, scales])


@pytest.mark.parametrize("gated", [False, True])
def test_what_is_larger_than_a_binding_together_is_launched_apart(gated: bool) -> None:
    layer = Layer()
    outs: tuple[Tensor, ...] = layer.product(layer.x, 64), layer.product(layer.x, 64)
    outs = (layer.gate(*outs),) if gated else outs
    together = 2 * 64 * 32  # bytes of weights
    for room, products in ((together, 1), (together - 1, 2)):
        compiled = layer.prepare([layer.x], outs, replace(GPU, binding_bytes_max=room))
        launches = [launch.module.kernel.name for launch in plan_at(compiled).launches]
        assert launches.count("q4_digits") == products


@pytest.mark.parametrize("depth", [4608, 4640])
def test_rows_take_workgroup_memory(depth: int) -> None:
    target = Target(is_cpu=False, subgroup_size=8, invocations_max=256, workgroup_bytes_max=16600)
    layer = Layer()
    x = layer.tensor(1, 1, depth)
    compiled = layer.prepare([x], [layer.product(layer.norm(x), 4096)], target)
    (launch,) = plan_at(compiled).launches
    assert launch.module.kernel.name == "q4_digits"
    assert workgroup_bytes(launch) <= target.workgroup_bytes_max


def workgroup_bytes(launch: Launch) -> int:
    """The workgroup memory that a launch's kernel declares."""
    element_bytes = {"f32": 4, "vec2<u32>": 8, "vec3<u32>": 16, "vec4<u32>": 16}
    arrays = re.findall(r"var<workgroup> \w+: array<([\w<>]+), ([^;]+)>;", launch.module.source)
    constants = dict(launch.module.constants)
    counts = [eval(re.sub(r"\b(\d+)u", r"\1", size), {}, constants) for _, size in arrays]
    return sum(element_bytes[kind] * count for (kind, _), count in zip(arrays, counts, strict=True))


def test_scales_that_another_operator_reads() -> None:
    layer = Layer()
    layer.dynamic(layer.x)
    layer.nodes.pop()  # the product
    seen: Any = layer.nodes[0].args[-1]
    assert layer.names(layer.apply(RELU, seen.items[0])) == [QPARAMS, RELU]
