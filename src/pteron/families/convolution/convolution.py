"""Convolutions: over one dim or two, grouped, dilated, transposed, with bounds on their outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pteron.families.convolution.geometry import geometry, out_shape
from pteron.families.convolution.kernels import Convolution
from pteron.graph import Shape
from pteron.ops import Dispatch, Operand, Target, define, op, require

_ARGUMENTS = (
    "input weight bias? stride:ints padding:ints dilation:ints transposed:bool output_padding:ints groups:int"
)


def _shape(
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: object,
) -> Shape:
    sizes = geometry(x, weight, stride, padding, dilation, transposed, output_padding, int(groups))
    return out_shape(sizes, x.rank)


@op(
    "et_vk.conv_with_clamp.default",
    f"{_ARGUMENTS} output_min:number? output_max:number? -> out",
    shape=_shape,
)
def conv_with_clamp(
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_min: float | None,
    output_max: float | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    sizes = geometry(x, weight, stride, padding, dilation, transposed, output_padding, int(groups))
    fits = bias is None or bias.numel == sizes.rows
    require(fits, f"bias must have one value for each of the {sizes.rows} channels", weight, bias)
    low = -math.inf if output_min is None else float(output_min)
    high = math.inf if output_max is None else float(output_max)
    yield from Convolution(sizes, x, weight, bias, out, low, high).dispatches(target)


def _convolution(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    *inputs, out = arguments
    yield from conv_with_clamp(*inputs, None, None, out, target=target)


define("aten.convolution.default", f"{_ARGUMENTS} -> out", shape=_shape, compute=_convolution)
