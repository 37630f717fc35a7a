"""Int8 tensors with one scale each: element-wise operators and linear layers, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import NOTHING, check_op, each, floats, refuse_op
from int8 import ADD, FULL, LINEAR, RELU, SHUFFLE, bias_of, factors, parameters

from pteron.ops import Target
from pteron.reference.quantized import linear_to_floats, rounded

GEMV = "et_vk.q8ta_linear_gemv.default"
TO_FLOATS = "et_vk.linear_q8ta_q8csw.default"
LIVE_ROWS = {"M": (67, 1, 33, 2, 5, 3, 130, 4)}
EVERY = np.arange(-128, 128)

# Element-wise -----------------------------------------------------------------------------------


# With the second set of scales some sums are half-way between two int8 steps.
@each("scales", [(0.031, 5, 0.047, -4, 0.06, 7), (0.5, 0, 0.25, 3, 0.5, -1)])
@each("alpha", [1.0, 2.0, 0.3, -1.0])
def test_add(scales: Any, alpha: float, target: Target) -> None:
    options: dict[str, Any] = {"out": "i8", "target": target}
    check_op(ADD, tensor(3, "S", 5, **FULL), tensor("S", 1, **FULL), *scales, alpha, **options)
    every = tensor(values=EVERY, dtype="i8"), tensor(values=EVERY[:, None], dtype="i8")
    check_op(ADD, *every, *scales, alpha, **options)


@each("scales", [(0.031, 5, 0.047, -4), (0.25, -128, 0.5, 127), (0.1, 10, 0.1, -20)])
def test_relu(scales: Any, target: Target) -> None:
    options: dict[str, Any] = {"out": "i8", "target": target}
    check_op(RELU, tensor("S", 3, "T", **FULL), *scales, **options)
    check_op(RELU, tensor(values=EVERY, dtype="i8"), *scales, **options)
    check_op(RELU, tensor("S", 3, "T", **FULL), *scales, **options, live=NOTHING)


@each("factor", [1, 2, 3])
@each("scales", [(0.031, 5, 1 / 0.031, 5), (0.031, 5, 1 / 0.047, -4)])
def test_pixel_shuffle(factor: int, scales: Any, target: Target) -> None:
    for shape in (("S", 2 * factor * factor, 3, "T"), (factor * factor, "S", "T")):
        x = tensor(*shape, **FULL)
        check_op(SHUFFLE, x, *scales, factor, out="i8", target=target)


def test_elements_refuse() -> None:
    x, floats = tensor(4, 3, 3, **FULL), tensor(4, 3, 3, dtype="f32")
    shape = [(4, 3, 3)]
    for wrong in ((floats, x), (x, floats)):
        refuse_op(ADD, *wrong, 1, 0, 1, 0, 1, 0, 1, match="all tensors must be i8", dtype="i8", out=shape)
    refuse_op(ADD, x, x, 1, 0, 1, 0, 0, 0, 1, match="scale 0.0 must be", dtype="i8", out=shape)
    refuse_op(RELU, floats, 1, 0, 1, 0, match="all tensors must be i8", dtype="i8", out=shape)
    for factor, match in ((3, "channels must be a multiple of 9"), (0, "upscale_factor 0 must be positive")):
        refuse_op(SHUFFLE, x, 1, 0, 1, 0, factor, match=match, dtype="i8", out=[(1, 6, 6)])


# Linear -----------------------------------------------------------------------------------------


@pytest.mark.long(every=18)
@pytest.mark.parametrize("name", [LINEAR, GEMV])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (7, 5), (32, 67), (101, 130)])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_linear(name: str, depth: int, columns: int, activation: str, target: Target) -> None:
    arguments = (
        *factors(columns, depth),
        0.05,
        -3,
        bias_of(columns) if activation == "relu" else None,
        activation,
    )
    x = tensor("M", depth, **FULL)
    check_op(name, x, 0.02, 5, *arguments, live=LIVE_ROWS, out="i8", target=target)


def test_linear_of_more_dims_and_no_rows(target: Target) -> None:
    arguments = (*factors(13, 36), 0.05, -3, bias_of(13), "none")
    x = tensor(2, "M", 36, **FULL)
    live = {"M": (5, 0, 1, 3)}
    check_op(LINEAR, x, 0.02, -128, *arguments, live=live, out="i8", target=target)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("rows", [1, 5])
def test_the_deepest_sum(rows: int, target: Target) -> None:
    """255 · 128 · 65,793 is the last that 32 bits hold."""
    depth = 65_793
    weights = np.full((4, depth), -128)
    weights[1], weights[2] = 127, np.where(np.arange(depth) % 2, 127, -128)
    arguments = (weight(values=weights, dtype="i8"), *parameters(weights.sum(1), 4))
    x = tensor(values=np.full((rows, depth), -128), dtype="i8")
    rest = (4e5, 0, None, "none")
    check_op(LINEAR, x, 0.02, 127, *arguments, *rest, out="i8", target=target)
    exact = (*arguments, None)
    check_op(TO_FLOATS, x, 0.02, 127, *exact, target=target, tolerance=1e-9)


def test_more_workgroups_than_an_axis_takes(target: Target) -> None:
    narrow = replace(target, workgroups_max=37)
    arguments = (*factors(1009, 4), 0.05, -3, None, "none")
    x, live = tensor("M", 4, **FULL), {"M": (2, 1, 150)}
    check_op(LINEAR, x, 0.02, 5, *arguments, live=live, out="i8", target=narrow)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("bias", [True, False])
@floats
def test_linear_to_floats(bias: bool, dtype: str, target: Target) -> None:
    arguments = (*factors(13, 36), bias_of(13) if bias else None)
    x = tensor("M", 36, **FULL)
    options: dict[str, Any] = {"live": LIVE_ROWS, "target": target, "dtype": dtype}
    tolerance = 1e-9 if dtype == "f32" else 2e-3
    check_op(TO_FLOATS, x, 0.02, 5, *arguments, **options, tolerance=tolerance)

    def of_floats(x: Any, s: float, z: int, *rest: Any) -> Any:
        return linear_to_floats(rounded(x, s, z), s, z, *rest)

    x = tensor("M", 36)
    check_op(TO_FLOATS, x, 0.02, 5, *arguments, oracle=of_floats, **options, tolerance=tolerance)


def test_linear_refuses() -> None:
    good = factors(5, 8)
    x, rest = tensor(3, 8, **FULL), (0.05, -3, None, "none")

    def refuse(*arguments: Any, match: str, name: str = LINEAR) -> None:
        refuse_op(name, *arguments, match=match, dtype="i8", out=[(3, 5)])

    refuse(x, 0.02, 5, *good, 0.05, -3, None, "gelu", match="activation 'gelu' must be one of none, relu")
    refuse(x, 0.02, 200, *good, *rest, match="zero point 200 of int8 activations")
    refuse(x, 0.02, 5, *good, 0.0, -3, None, "none", match="scale 0.0 must be")
    refuse(tensor(3, 9, **FULL), 0.02, 5, *good, *rest, match="weights \\[n, at least k\\]")
    refuse(tensor(3, 8, dtype="f32"), 0.02, 5, *good, *rest, match="all tensors must be i8")
    refuse(x, 0.02, 5, good[0], weight(3, dtype="i32"), good[2], *rest, match="5 channels need as many sums")
    refuse(
        x, 0.02, 5, good[0], good[1], weight(3, dtype="f32"), *rest, match="5 channels need as many scales"
    )
    refuse(x, 0.02, 5, *good, 0.05, -3, weight(3, dtype="f32"), "none", match="bias must have 5 values")
    refuse(tensor(3, 0, **FULL), 0.02, 5, *good, *rest, match="something to add up")
    from_the_call = tensor(5, 8, **FULL)
    refuse(x, 0.02, 5, from_the_call, *good[1:], *rest, match="must be a constant")
    refuse(x, 0.02, 5, *good, None, match="must be of floats", name=TO_FLOATS)
    deep = weight(5, 65_794, **FULL)
    refuse(tensor(3, 65_794, **FULL), 0.02, 5, deep, *good[1:], *rest, match="do not fit into 32 bits")
