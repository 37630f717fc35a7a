"""Tensors made from numbers, and padding with them."""

from __future__ import annotations

import math
from typing import Any

import torch
from arguments import Symbol, tensor, weight
from check import INTEGERS_AND_FLOATS, check_op, each, every_dtype, refuse_op

OPTIONS = (None,) * 4
LIKE_OPTIONS = (None,) * 5
TORCH = {
    "f32": torch.float64,
    "f16": torch.float64,
    "i32": torch.int64,
    "i64": torch.int64,
    "bool": torch.bool,
}


@every_dtype
@each("value", [0, 1, -2.75, True])
@each("size", [[], [7], [3, 5], [0, 3]])
def test_full(size: list[int], value: float, dtype: str) -> None:
    def oracle(size: list[int], value: float, *_: Any) -> Any:
        return torch.full(size, value, dtype=TORCH[dtype])

    check_op("aten.full.default", size, value, *OPTIONS, oracle=oracle, out=dtype)


@each("value", [math.inf, -math.inf, math.nan, -3.4028234e38, 1e10, 16777217, 2**31, -(2**31)])
def test_full_of_any_float(value: float) -> None:
    check_op(
        "aten.full.default",
        [5],
        value,
        *OPTIONS,
        oracle=lambda *_: torch.full([5], value, dtype=torch.float64),
    )


@each("value", [16777217, 2**31 - 1, -(2**31)])
def test_integers_are_exact(value: int) -> None:
    check_op("aten.full.default", [5], value, *OPTIONS, out="i32")


def test_full_of_a_live_size_and_value() -> None:
    arguments = ([Symbol("S"), 3], Symbol("p"), *OPTIONS)
    for out in ("i64", "f32", "bool"):
        check_op("aten.full.default", *arguments, live={"S": (5, 1, 7), "p": (3, -1, 0)}, out=out)


def test_a_live_value_takes_no_new_plan() -> None:
    check_op("aten.full.default", [3], Symbol("p"), *OPTIONS, live={"p": (3, -1, 0)}, out="i64", plans=0)


@every_dtype
def test_full_like(dtype: str) -> None:
    check_op("aten.full_like.default", tensor("S", 3), 2, *LIKE_OPTIONS, dtype=dtype, out=dtype)


@every_dtype
@each("name", ["ones", "zeros"])
def test_ones_and_zeros(name: str, dtype: str) -> None:
    check_op(f"aten.{name}.default", [3, Symbol("S")], *OPTIONS, out=dtype)
    check_op(f"aten.{name}.default", [5, 3], *OPTIONS, out=dtype)
    check_op(f"aten.{name}_like.default", tensor("S", 3), *LIKE_OPTIONS, dtype=dtype, out=dtype)
    check_op(f"aten.{name}_like.default", weight(5, 3), *LIKE_OPTIONS, dtype=dtype, out=dtype)


@each("dtype", INTEGERS_AND_FLOATS)
def test_scalar_tensor(dtype: str) -> None:
    check_op("aten.scalar_tensor.default", 7, *OPTIONS, out=dtype)
    check_op("aten.scalar_tensor.default", Symbol("p"), *OPTIONS, live={"p": (7, -7)}, out=dtype)


@each("dtype", INTEGERS_AND_FLOATS)
@each(("start", "end", "step"), [(0, 7, 1), (3, 20, 5), (5, -6, -2), (4, 4, 1), (2.0, 9.0, 1.0)])
def test_arange(start: float, end: float, step: float, dtype: str) -> None:
    check_op("aten.arange.start_step", start, end, step, *OPTIONS, out=dtype)


@each(("start", "end", "step"), [(0, 1, 0.25), (-1.5, 2.5, 0.3), (1.0, -1.0, -0.125)])
def test_arange_by_fractions(start: float, end: float, step: float) -> None:
    def oracle(*_: Any) -> Any:
        return torch.arange(start, end, step, dtype=torch.float64)

    check_op("aten.arange.start_step", start, end, step, *OPTIONS, oracle=oracle)


@each("out", ["i64", "f32"])
def test_arange_of_live_bounds(out: str) -> None:
    check_op(
        "aten.arange.start_step",
        Symbol("S"),
        Symbol("T"),
        1,
        *OPTIONS,
        live={"S": (0, 5, 3), "T": (7, 5, 20)},
        out=out,
    )


# Padding ----------------------------------------------------------------------------------------


@every_dtype
@each("pad", [[1, 2], [0, 0], [0, 0, 2, 0], [-1, 2], [1, -2, -1, 3], [-2, -1], []])
def test_pad(pad: list[int], dtype: str) -> None:
    check_op("aten.constant_pad_nd.default", tensor("S", 4, 5), pad, 1, dtype=dtype)


def test_pad_of_a_live_dim() -> None:
    check_op("aten.constant_pad_nd.default", tensor(2, "S"), [3, 1, 0, 2], -0.5)
    check_op("aten.constant_pad_nd.default", tensor(2, "S"), [-1, 2], math.inf)


def test_pad_by_live_borders() -> None:
    check_op("aten.constant_pad_nd.default", tensor(2, 3), [Symbol("p"), 1], 2.5, live={"p": (3, 0, -2)})


def test_pad_of_nothing() -> None:
    check_op("aten.constant_pad_nd.default", tensor(2, 0), [1, 2], 2.5)
    check_op("aten.constant_pad_nd.default", tensor(2, 3), [-2, -1], 2.5)


def test_refusals() -> None:
    x = tensor(3, 5)
    refuse_op("aten.arange.start_step", 0, 5, 0, *OPTIONS, match="steps of zero")
    refuse_op("aten.arange.start_step", 5, 0, 1, *OPTIONS, match="from 5 to 0 by 1 runs the wrong way")
    refuse_op("aten.arange.start_step", 0, math.inf, 1, *OPTIONS, match="does not end")
    refuse_op(
        "aten.full.default", [3], math.nan, *OPTIONS, dtype="i32", out=((3,),), match="integers cannot be nan"
    )
    refuse_op("aten.full.default", [-3], 1, *OPTIONS, out=((3,),), match=r"\[-3\] does not fit")
    refuse_op("aten.constant_pad_nd.default", x, [1], 0, match=r"two borders per dim, .*; got .*\[3, 5\]")
    refuse_op("aten.constant_pad_nd.default", x, [5, -6], 0, match="crops more than there is")
