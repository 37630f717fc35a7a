"""Convolutions of int8 planes with int8 weights, a scale per output channel, to int8 planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pteron.families.quantized.elements_q8 import require_int8
from pteron.families.quantized.planes import Planes, to_int8
from pteron.families.quantized.product_q8 import TRANSPOSED, product
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Target, define, op, require
from pteron.ops.window import Window

Ints = Sequence[AnyInt]

_BEFORE = (
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales output_scale:float "
    "output_zero_point:int bias? kernel_size:ints stride:ints padding:ints "
)
_AFTER = "dilation:ints groups:int activation:str -> out"
SIGNATURE = _BEFORE + _AFTER


def planes_of(
    x: Operand, channels: int, window: Window, groups: AnyInt, output_padding: Ints | None = None
) -> Planes:
    """The sizes of a convolution of x, with one or several images; transposed, where there is an
    `output_padding`."""
    groups = int(groups)
    fits = x.rank in (3, 4) and min(x.shape[-2:]) > 0
    require(fits, "x must be [image, channel, height, width], or one image, with places", x)
    fits = groups > 0 and x.shape[-3] % groups == 0 and channels % groups == 0
    require(fits, f"{groups} groups must divide the channels of x and of the output, {channels}", x)
    plane = x.shape[-2], x.shape[-1]
    more = None if output_padding is None else [int(size) for size in output_padding]
    return Planes(
        images=x.shape[0] if x.rank == 4 else 1,
        groups=groups,
        channels_in=x.shape[-3] // groups,
        channels=channels // groups,
        size_in=plane,
        size=window.places(plane) if more is None else window.spread(plane, more),
        window=window,
    )


def window_of(kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    return Window.of(*([int(size) for size in sizes] for sizes in (kernel_size, stride, padding, dilation)))


def shape_of(x: Operand, planes: Planes) -> Shape:
    return (*x.shape[:-3], planes.groups * planes.channels, *planes.size)


# Regular ----------------------------------------------------------------------------------------


def _conv2d_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, dilation, groups, _ = rest
    window = window_of(kernel_size, stride, padding, dilation)
    require(weights.rank == 2, "weights must be [channel, tap · channel of a group]", weights)
    return shape_of(x, planes_of(x, weights.shape[0], window, groups))


def q8ta_conv2d(
    x: Operand,
    input_scale: float,
    input_zero_point: AnyInt,
    weights: Operand,
    weight_sums: Operand,
    weight_scales: Operand,
    output_scale: float,
    output_zero_point: AnyInt,
    bias: Operand | None,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: AnyInt,
    activation: str,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Weights are [channel, tap · channel of a group], rows padded at their end."""
    require_int8(x, out)
    planes = planes_of(x, weights.shape[0], window_of(kernel_size, stride, padding, dilation), groups)
    epilogue = to_int8(
        *(weight_scales, bias, input_scale, input_zero_point),
        *(output_scale, output_zero_point, activation),
    )
    yield from product(x, weights, weight_sums, planes, epilogue, out, target)


# Pointwise ones have a name of their own, and windows of one element.
for _name in ("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default"):
    define(_name, SIGNATURE, shape=_conv2d_shape, compute=q8ta_conv2d)


# Transposed -------------------------------------------------------------------------------------


def _transposed_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, output_padding, dilation, groups, _ = rest
    window = window_of(kernel_size, stride, padding, dilation)
    require(weights.rank == 2, "weights must be [channel, tap · channel of a group]", weights)
    return shape_of(x, planes_of(x, weights.shape[0], window, groups, output_padding))


@op(
    "et_vk.q8ta_conv2d_transposed.default",
    f"{_BEFORE}output_padding:ints {_AFTER}",
    shape=_transposed_shape,
)
def q8ta_conv2d_transposed(
    x: Operand,
    input_scale: float,
    input_zero_point: AnyInt,
    weights: Operand,
    weight_sums: Operand,
    weight_scales: Operand,
    output_scale: float,
    output_zero_point: AnyInt,
    bias: Operand | None,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
    groups: AnyInt,
    activation: str,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Weights are those of `q8ta_conv2d`. Groups share their scales: the exporter quantises along the dim of
    weights that holds the output channels of one group."""
    require_int8(x, out)
    window = window_of(kernel_size, stride, padding, dilation)
    planes = planes_of(x, weights.shape[0], window, groups, output_padding)
    epilogue = to_int8(
        *(weight_scales, bias, input_scale, input_zero_point),
        *(output_scale, output_zero_point, activation, TRANSPOSED),
    )
    yield from product(x, weights, weight_sums, planes, epilogue, out, target, planes.channels)
