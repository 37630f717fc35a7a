"""Weights of 4 and 8 bits with a scale per output column: against the dequantised product in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, floats, refuse_op
from quantized_cases import INT8, QCS4W, bytes_of, random_nibbles, scales_of

from pteron.ops import Target
from pteron.reference.products import linear_int8_weights

pytestmark = pytest.mark.kernels

LIVE_ROWS = {"M": (67, 1, 33, 2, 5, 3, 17, 4)}
DEPTHS = [1, 2, 6, 8, 36, 101, 324]  # with words and vec4s that are whole, and that are not


@pytest.mark.long(every=21)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("columns", [1, 67, 130])
def test_four_bits(depth: int, columns: int, target: Target) -> None:
    arguments = (tensor("M", depth, low=-1, high=1), random_nibbles(columns, depth), scales_of(columns))
    check_op(QCS4W, *arguments, live=LIVE_ROWS, target=target)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("depth", [1, 8, 36, 101])
def test_four_bits_in_strips(depth: int, own_subgroups: Target) -> None:
    """With subgroups, 5 to 32 rows run by q4_rows, whose loads must not cross the rows of weights: these have
    any number of words."""
    arguments = (tensor("M", depth, low=-1, high=1), random_nibbles(67, depth), scales_of(67))
    check_op(QCS4W, *arguments, live={"M": (32, 5, 17)}, target=own_subgroups)


@pytest.mark.long(every=21)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("columns", [1, 67, 130])
def test_eight_bits(depth: int, columns: int, target: Target) -> None:
    arguments = (tensor("M", depth, low=-1, high=1), bytes_of(columns, depth), scales_of(columns))
    check_op(INT8, *arguments, oracle=linear_int8_weights, live=LIVE_ROWS, target=target, tolerance=5e-5)


@pytest.mark.long(every=2)
@floats
def test_float_types_and_more_dims(dtype: str, target: Target) -> None:
    tolerance = 5e-5 if dtype == "f32" else 1e-2
    options: dict[str, Any] = {"live": {"M": (33, 1, 0, 5)}, "target": target, "tolerance": tolerance}
    for depth in (7, 64):
        x = tensor(2, "M", depth, low=-1, high=1)
        check_op(QCS4W, x, random_nibbles(13, depth), scales_of(16), dtype=dtype, **options)
        check_op(
            INT8, x, bytes_of(13, depth), scales_of(16), oracle=linear_int8_weights, dtype=dtype, **options
        )


@pytest.mark.long(every=2)
@pytest.mark.parametrize("rows", [1, 5])
def test_deep_products(rows: int, target: Target) -> None:
    """Rows that one invocation does not walk to their end; terms come to thousands, sums to less."""
    depth = 80_003
    x = tensor(values=np.random.default_rng(3).uniform(-1, 1, (rows, depth)))
    for name, weights, oracle in (
        (QCS4W, random_nibbles(5, depth), None),
        (INT8, bytes_of(5, depth), linear_int8_weights),
    ):
        check_op(name, x, weights, scales_of(5), oracle=oracle, target=target, tolerance=2e-3)


def test_extremes(target: Target) -> None:
    values = np.array([[-128, 127, -1, 0, 1, -127, 64, -64, 3]])
    x = tensor(values=np.eye(9))
    check_op(
        INT8,
        x,
        weight(values=values, dtype="i8"),
        weight(values=[1.0]),
        oracle=linear_int8_weights,
        target=target,
    )
    every = np.arange(256)[None]
    x = tensor(values=np.eye(512))
    check_op(QCS4W, x, weight(values=every, dtype="u8"), weight(values=[1.0]), target=target)


def test_refusals() -> None:
    x, scales, out = tensor(3, 8), scales_of(5), [(3, 5)]
    refuse_op(QCS4W, x, random_nibbles(5, 6), scales, match="at least k / 2", out=out)
    refuse_op(QCS4W, x, bytes_of(5, 4), scales, match="must be u8", out=out)
    refuse_op(QCS4W, x, random_nibbles(5, 8), scales_of(4), match="scales must be 5", out=out)
    refuse_op(INT8, x, bytes_of(5, 7), scales, match="weights \\[n, k\\]", out=out)
    refuse_op(INT8, x, weight(5, 8, dtype="u8", low=0), scales, match="must be i8", out=out)
    refuse_op(INT8, tensor(3, 0), bytes_of(5, 0), scales, match="something to add up", out=out)
    from_the_call = tensor(5, 8, dtype="i8")
    refuse_op(INT8, x, from_the_call, scales, match="must be a constant", out=out)
