"""Elementwise operators: every name, odd broadcasts, and the edges of floats and integers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from arguments import tensor, weight
from check import NOTHING, check_op, each, each_float, each_integer_and_float, every_dtype, refuse_op
from measure import Measuring

from pteron import Device

NAN, INF = math.nan, math.inf
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 88.0, -88.0, 1e30, -1e30, INF, -INF, NAN)
TENSOR_COMPARISONS = ("eq", "lt", "le", "gt", "ge")
SCALAR_COMPARISONS = (*TENSOR_COMPARISONS, "ne")


# One tensor -------------------------------------------------------------------------------------
# test_live_shapes.py runs every operator in every type at plain values.


@each("name", ["log10", "rsqrt", "sqrt"])
@each_float
def test_unary_of_positives(name: str, dtype: str) -> None:
    check_op(f"aten.{name}.default", tensor("S", 5, low=0.01, high=9), dtype=dtype)


@each("name", ["abs", "hardswish", "neg", "relu", "round", "sigmoid", "sqrt", "tanh"])
def test_unary_edges(name: str) -> None:
    check_op(f"aten.{name}.default", tensor(values=EDGES))


def test_round_and_relu_at_their_edges() -> None:
    check_op("aten.round.default", tensor(values=(0.5, 1.5, 2.5, -0.5, -1.5, 2.4999998, 8388609.0)))
    check_op("aten.relu.default", tensor(values=(-1e-38, -1.0, -INF, NAN, 1e-38)))


@each("shape", [(), (0,), ("S", 0, 3), (2, 1, 3, 1, 2, "T"), (64 * 65536 + 7,)])
def test_unary_of_any_shape(shape: tuple[int | str, ...]) -> None:
    """The last one's grid is folded into two axes."""
    check_op("aten.neg.default", tensor(*shape))


def test_live_dims_of_no_elements() -> None:
    check_op("aten.neg.default", tensor("S", 3), live=NOTHING)
    check_op("aten.add.Tensor", tensor("S", 3), tensor("S", 1), 1, live=NOTHING)
    check_op("aten.where.self", tensor("S", 1, dtype="bool"), tensor("S", 3), tensor(3), live=NOTHING)


# One tensor and scalars -------------------------------------------------------------------------


@each(
    ("name", "scalars"),
    [
        ("hardshrink", (0.75,)),
        *[("hardtanh", bounds) for bounds in [(-1.0, 1.5), (0, 6), (-INF, 0.25)]],
        ("leaky_relu", (0.25,)),
        *[("clamp", bounds) for bounds in [(-1.0, 2.0), (None, 1.0), (0.0, None)]],
    ],
)
@each_float
def test_edges_with_scalars(name: str, scalars: tuple[Any, ...], dtype: str) -> None:
    check_op(f"aten.{name}.default", tensor("S", 5), *scalars, dtype=dtype)
    check_op(f"aten.{name}.default", tensor(values=EDGES), *scalars)


def test_hardshrink_at_its_bound() -> None:
    check_op("aten.hardshrink.default", tensor(values=(0.5, -0.5, 0.50001, INF, -INF, 0.0)), 0.5)


@each("word", SCALAR_COMPARISONS)
def test_compare_with_scalar(word: str) -> None:
    check_op(f"aten.{word}.Scalar", tensor(values=EDGES), 0.0)
    for other in (0.5, -1.5, INF, -INF, NAN):
        check_op(f"aten.{word}.Scalar", tensor(values=(-2, -1, 0, 1, 2)), other, dtype="i32")


@each(("low", "high"), [(-1, 2), (None, 1), (0, None), (2, -2), (-INF, INF)])
@each_integer_and_float
def test_clamp(low: float | None, high: float | None, dtype: str) -> None:
    if dtype.startswith("f") or not any(bound in (INF, -INF) for bound in (low, high)):
        check_op("aten.clamp.default", tensor("S", 5), low, high, dtype=dtype)


def test_bounds_that_are_nan() -> None:
    for low, high in ((NAN, 1.0), (0.0, NAN), (NAN, None), (None, NAN)):
        check_op("aten.clamp.default", tensor(values=EDGES), low, high)


@each(("low", "high"), [(0, 2**31 - 1), (-(2**31), 5), (-(2**63), 2**63 - 1)])
def test_clamp_integers_to_their_limits(low: int, high: int) -> None:
    check_op("aten.clamp.default", tensor(values=(-(2**31), -7, 0, 7, 2**31 - 1)), low, high, dtype="i64")


@each("approximate", ["none", "tanh"])
@each_float
def test_gelu(approximate: str, dtype: str) -> None:
    check_op("aten.gelu.default", tensor("S", 5, "T", low=-6, high=6), approximate, dtype=dtype)
    edges = (0.0, -0.0, 1e-20, 30.0, -30.0, 1e12, -1e12, NAN)
    check_op("aten.gelu.default", tensor(values=edges), approximate)


@each("exponent", [-2, -1.0, -0.5, 0, 0.5, 1, 1.75, 2.0, 3, 4, 5.0, 7])
@each_float
def test_pow_by_scalar(exponent: float, dtype: str) -> None:
    check_op("aten.pow.Tensor_Scalar", tensor("S", 5, low=0.5, high=2), exponent, dtype=dtype)
    if exponent in (-2, -1, 0, 1, 2, 3, 5, 0.5):
        values = (0.0, 1.0, -1.0, 0.5, -2.5, 1e3, -1e3, INF, -INF, NAN)
        check_op("aten.pow.Tensor_Scalar", tensor(values=values), float(exponent))


def test_pow_of_integers() -> None:
    for exponent in (0, 1, 2, 3, 5):
        check_op("aten.pow.Tensor_Scalar", tensor(values=(-7, -1, 0, 1, 7)), exponent, dtype="i32")
    check_op("aten.pow.Tensor_Scalar", tensor(values=(3, -3)), 19, dtype="i32")
    check_op("aten.pow.Tensor_Tensor", tensor(values=(3, -3, 46340)), tensor(values=(19, 19, 2)), dtype="i32")
    for dtype in ("i32", "i64"):
        bases, exponents = tensor("S", 5, low=-4, high=4), tensor(5, low=0, high=5)
        check_op("aten.pow.Tensor_Tensor", bases, exponents, dtype=dtype)


# Two tensors ------------------------------------------------------------------------------------

BROADCASTS = [
    ((), ()),
    ((), ("S", 3)),
    (("S", 3), ()),
    (("S", 5), (5,)),
    ((5,), ("S", 5)),
    (("S", 1), (1, "T")),
    (("S", 3, 1, "T"), (3, 5, 1)),
    ((1,), (2, 3, "S")),
    ((2, 1, "S", 1, 2, 1), (1, 3, 1, 2, 1, "T")),
    ((2, 3, "S", 1, 2, 3), (2, 1, "S", 4, 1, 3)),
    (("S", 0), (1,)),
]


@each(("a", "b"), BROADCASTS)
def test_broadcast(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> None:
    check_op("aten.sub.Tensor", tensor(*a), tensor(*b), 1)


@each("name", ["aten.sub.Tensor", "aten.lt.Tensor"])
@each("wide", [(3, "S", 4, 2), (4, "S", 7, 1), (4, "S", 7, 5)])
def test_broadcast_in_quads(
    name: str, wide: tuple[int | str, ...], measuring: Measuring, device: Device
) -> None:
    """Along one or both last dims, either operand; four elements have one or several of the other."""
    measuring.kernels.clear()
    alpha = (1,) if name == "aten.sub.Tensor" else ()
    for narrow in (("S", 1, 1), wide[2:], ()):
        check_op(name, tensor(*wide), tensor(*narrow), *alpha)
        check_op(name, tensor(*narrow), tensor(*wide), *alpha)
    assert "binary_quads" in measuring.kernels or not device.target.is_cpu


@each_integer_and_float
def test_add_and_subtract(dtype: str) -> None:
    check_op("aten.add.Tensor", tensor("S", 5), tensor("S", 5), 1, dtype=dtype)
    check_op("aten.add.Tensor", tensor("S", 5), weight(5), 3, dtype=dtype)
    check_op("aten.sub.Tensor", weight(5), tensor("S", 5), 2, dtype=dtype)


@each("name", ["aten.add.Tensor", "aten.mul.Tensor", "aten.minimum.default"])
def test_integers_and_floats_meet(name: str) -> None:
    rest = (1,) if "add" in name else ()
    check_op(name, tensor("S", 5, dtype="i32"), tensor(5, dtype="f32"), *rest)


def test_integers_are_exact_beyond_the_floats() -> None:
    check_op("aten.add.Tensor", tensor(values=(2**24, -(2**30))), tensor(values=(1, 7)), 1, dtype="i32")


def test_divide() -> None:
    check_op("aten.div.Tensor", tensor("S", 5, dtype="i32"), tensor(5, dtype="i32", low=1, high=9))
    check_op("aten.div.Tensor", tensor(values=(1.0, -1.0, 0.0, INF)), tensor(values=0.0))
    for dtype in ("f32", "f16"):
        check_op("aten.div.Tensor", tensor("S", 5), tensor("S", 5, low=0.5, high=3), dtype=dtype)
        for mode in (None, "trunc", "floor"):
            numerators, denominators = (7.0, -7.0, 7.5, -7.5), [[2.0], [-2.0]]
            arguments = tensor(values=numerators), tensor(values=denominators), mode
            check_op("aten.div.Tensor_mode", *arguments, dtype=dtype)


@each("mode", ["trunc", "floor"])
@each("dtype", ["i32", "i64"])
def test_divide_integers_by_mode(mode: str, dtype: str) -> None:
    numerators = tensor(values=[[n] for n in range(-9, 10)])
    check_op("aten.div.Tensor_mode", numerators, tensor(values=(1, 2, 3, -1, -2, -3)), mode, dtype=dtype)


@each("name", [*(f"{word}.Tensor" for word in TENSOR_COMPARISONS), "minimum.default"])
def test_edges_of_both(name: str) -> None:
    check_op(f"aten.{name}", tensor(values=[[edge] for edge in EDGES]), tensor(values=EDGES))


@each_float
def test_pow_by_tensor(dtype: str) -> None:
    check_op("aten.pow.Tensor_Tensor", tensor("S", 5, low=0.5, high=2), tensor(5), dtype=dtype)


def test_pow_by_tensor_edges() -> None:
    bases = [[base] for base in (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, INF, -INF, NAN)]
    exponents = (0.0, 1.0, -1.0, 2.0, 3.0, -2.0, 0.5, INF, -INF, NAN)
    check_op("aten.pow.Tensor_Tensor", tensor(values=bases), tensor(values=exponents))
    check_op("aten.pow.Tensor_Tensor", tensor(values=(-0.0, -0.0, 0.0)), tensor(values=(-3.0, -2.0, -3.0)))


# Three tensors ----------------------------------------------------------------------------------


@each(
    ("condition", "a", "b"),
    [
        (("S", 5), ("S", 5), ("S", 5)),
        (("S", 1), (5,), ()),
        ((5,), ("S", 5), (1, 1)),
        ((), ("S", 5), ("S", 5)),
        ((2, 1, "S", 1, 2, 1), (1, 3, 1, 2, 1, "T"), (2, 3, 1, 1, 2, 1)),
        ((0,), (1,), ()),
    ],
)
def test_where(condition: tuple[int | str, ...], a: tuple[int | str, ...], b: tuple[int | str, ...]) -> None:
    check_op("aten.where.self", tensor(*condition, dtype="bool"), tensor(*a), tensor(*b))


@every_dtype
def test_where_moves_every_type(dtype: str) -> None:
    check_op("aten.where.self", tensor("S", 5, dtype="bool"), tensor("S", 5), weight(5), dtype=dtype)


def test_where_leaves_what_it_does_not_choose() -> None:
    check_op(
        "aten.where.self",
        tensor(values=(True, False), dtype="bool"),
        tensor(values=(1.0, NAN)),
        tensor(values=(INF, 2.0)),
    )


# Refusals ---------------------------------------------------------------------------------------


def test_refusals() -> None:
    refuse_op("aten.add.Tensor", tensor(3, 5), tensor(4, 5), 1, match=r"\[3, 5\], \[4, 5\] do not broadcast")
    refuse_op("aten.where.self", tensor(2), tensor(3), tensor(3), match="do not broadcast")
    live = {"S": (5, 3), "T": (5, 4)}
    refuse_op("aten.mul.Tensor", tensor("S"), tensor("T"), live=live, out=((5,),), match="do not broadcast")
    refuse_op("aten.gelu.default", tensor(3), "erf", out=((3,),), match="'erf'")
    refuse_op("aten.gelu.default", tensor(3), "tanh", dtype="u8", out=((3,),), match="computes floats")
    refuse_op("aten.clamp.default", tensor(3), None, None, out=((3,),), match=r"got %0:f32\[3\]")
    divide = (tensor(3), tensor(3), "up")
    refuse_op("aten.div.Tensor_mode", *divide, out=((3,),), match="'up'")
    refuse_op("aten.pow.Tensor_Scalar", tensor(3), -1, dtype="i32", out=((3,),), match="power of -1")
    large = r"\[3, 5\] does not fit into %1:f32\[3, 4\]"
    refuse_op("aten.neg.default", tensor(3, 5), out=((3, 4),), match=large)


@each_float
@pytest.mark.parametrize("name", ["silu", "hardsigmoid"])
def test_activations_of_rewrites(name: str, dtype: str) -> None:
    for size in (3, 90):
        x = tensor("S", 5, low=-size, high=size)
        check_op(f"pteron.{name}", x, oracle=getattr(torch.nn.functional, name), dtype=dtype)


@each_float
def test_a_gated_unit_in_one(dtype: str) -> None:
    def silu_mul(x: Any, y: Any) -> Any:
        return torch.nn.functional.silu(x) * y

    check_op("pteron.silu_mul", tensor("S", 5), tensor("S", 5), oracle=silu_mul, dtype=dtype)
    check_op("pteron.silu_mul", tensor("S", 5, low=-90, high=90), tensor(5), oracle=silu_mul)
