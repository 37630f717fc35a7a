"""Products with 4-bit weights and what surrounds them in a layer, as one operator: an RMS norm before them,
the scales and zero points by which x becomes int8, several of one x, a gate, a residual's sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.families.quantized.linear_q4 import linear_dq8ca_q4gsw, linear_shape
from pteron.families.quantized.products import Products
from pteron.families.quantized.sums import apart, sum_shape
from pteron.graph import Shape
from pteron.ops import Dispatch, Target, op, require


def _shapes(*inputs: Any) -> list[Shape]:
    x, _, _, weights, *_, residual, gated = inputs
    if residual is not None:
        (matrix,) = weights
        return [sum_shape(linear_shape(x, matrix), residual)]
    found = [linear_shape(x, matrix) for matrix in weights]
    require(not gated or len(set(found)) == 1 < len(found), "a gate must fit what it is for", x, *weights)
    return found[:1] if gated else found


@op(
    "pteron.linear_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int "
    "residual? gated:bool -> out:tensors",
    shape=_shapes,
)
def linear_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """x, normalised where there is a gain, times each matrix, plus its bias; then silu(first) · second where
    it is gated. The residual is added to a single product, which has no gate."""
    residual, is_gated, *outputs = arguments[7:]
    yield from Products(*arguments[:7]).into(tuple(outputs), residual, target, is_gated=is_gated)


@op(
    "pteron.linear_dq8ca_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int weight_sums:tensors "
    "least:float? residual? gated:bool -> out:tensors",
    shape=_shapes,
)
def linear_dq8ca_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """The same of x as int8 by the extremes of each row; `least` is the smallest scale."""
    residual, is_gated, *outputs = arguments[9:]
    yield from Products(*arguments[:9]).into(tuple(outputs), residual, target, is_gated=is_gated)


@op(
    "pteron.linear_dq8ca_q4_add",
    "x x_scales x_zeros weights weight_sums weight_scales group_size:int bias? residual -> out",
    shape=lambda x, x_scales, x_zeros, weights, *rest: sum_shape(linear_shape(x, weights), rest[-1]),
)
def linear_dq8ca_q4_add(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """A product of x as int8 by given scales and zero points, plus what is added to it."""
    *inputs, residual, out = arguments
    if parts := apart(linear_shape(inputs[0], inputs[3]), residual, out):
        alone, total = parts
        yield from linear_dq8ca_q4gsw(*inputs, alone, target=target)
        yield from total
    else:
        yield from linear_dq8ca_q4gsw(*inputs, out, residual, target=target)
