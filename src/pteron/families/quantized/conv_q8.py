"""Convolutions of int8 planes with int8 weights, a scale per output channel, to int8 planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.quantized.affine import reciprocal
from pteron.families.quantized.elements_q8 import require_int8
from pteron.families.quantized.linear_q8 import activation_of
from pteron.families.quantized.product_q8 import DEPTH_MAX, TRANSPOSED, Epilogue, Planes, pack, product
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, Target, define, op, require
from pteron.ops.operand import HostArray, packing
from pteron.ops.window import Pair, Window
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

Ints = Sequence[AnyInt]

_BEFORE = (
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales output_scale:float "
    "output_zero_point:int bias? kernel_size:ints stride:ints padding:ints "
)
_AFTER = "dilation:ints groups:int activation:str -> out"


def _planes(x: Operand, channels: int, window: Window, groups: int, size: Pair | None = None) -> Planes:
    """The sizes of a convolution of x, with one or several images."""
    require(x.rank in (3, 4), "x must be [image, channel, height, width], or one image", x)
    fits = groups > 0 and x.shape[-3] % groups == 0 and channels % groups == 0
    require(fits, f"{groups} groups must divide the channels of x and of the output, {channels}", x)
    plane = x.shape[-2], x.shape[-1]
    return Planes(
        images=x.shape[0] if x.rank == 4 else 1,
        groups=groups,
        channels_in=x.shape[-3] // groups,
        channels=channels // groups,
        size_in=plane,
        size=size or window.places(plane),
        window=window,
    )


def _window(kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    return Window.of(*([int(size) for size in sizes] for sizes in (kernel_size, stride, padding, dilation)))


def _shape(x: Operand, planes: Planes) -> Shape:
    return (*x.shape[:-3], planes.groups * planes.channels, *planes.size)


# Regular ----------------------------------------------------------------------------------------


def _conv2d_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, dilation, groups, _ = rest
    window = _window(kernel_size, stride, padding, dilation)
    require(weights.rank == 2, "weights must be [channel, tap · channel of a group]", weights)
    return _shape(x, _planes(x, weights.shape[0], window, int(groups)))


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
    planes = _planes(x, weights.shape[0], _window(kernel_size, stride, padding, dilation), int(groups))
    epilogue = Epilogue(
        *(weight_scales, bias, input_scale, int(input_zero_point)),
        *(reciprocal(output_scale), int(output_zero_point), activation_of(activation)),
    )
    yield from product(x, weights, weight_sums, planes, epilogue, out, target)


# Pointwise ones have a name of their own, and windows of one element.
for _name in ("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default"):
    define(_name, _BEFORE + _AFTER, shape=_conv2d_shape, compute=q8ta_conv2d)


# Transposed -------------------------------------------------------------------------------------


def _transposed_planes(
    x: Operand, weights: Operand, window: Window, output_padding: Ints, groups: AnyInt
) -> Planes:
    more = [int(size) for size in output_padding]
    fits = len(more) in (1, 2) and min(more) >= 0 and max(more) < max(window.stride + window.dilation)
    require(fits, f"output_padding {more} must be smaller than stride or dilation, and not negative")
    height, width = (
        (size - 1) * stride - 2 * padding + reach + extra
        for size, stride, padding, reach, extra in zip(
            x.shape[-2:], window.stride, window.padding, window.reach, (more[0], more[-1]), strict=True
        )
    )
    require(min(height, width) >= 0, f"{window} leaves no output", x)
    return _planes(x, weights.shape[0], window, int(groups), (height, width))


def _transposed_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, output_padding, dilation, groups, _ = rest
    window = _window(kernel_size, stride, padding, dilation)
    require(weights.rank == 2, "weights must be [channel, tap · channel of a group]", weights)
    return _shape(x, _transposed_planes(x, weights, window, output_padding, groups))


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
    window = _window(kernel_size, stride, padding, dilation)
    planes = _transposed_planes(x, weights, window, output_padding, groups)
    epilogue = Epilogue(
        *(weight_scales, bias, input_scale, int(input_zero_point)),
        *(reciprocal(output_scale), int(output_zero_point), activation_of(activation) | TRANSPOSED),
    )
    yield from product(x, weights, weight_sums, planes, epilogue, out, target, planes.channels)


# Depthwise --------------------------------------------------------------------------------------


def _depthwise_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, dilation, groups, _ = rest
    window = _window(kernel_size, stride, padding, dilation)
    planes = _planes(x, numel(weights.shape[2:]), window, int(groups))
    fits = (
        weights.rank == 3 and weights.shape[:2] == window.size and planes.channels_in == planes.channels == 1
    )
    size = list(window.size)
    require(fits, f"depthwise weights must be [{size[0]}, {size[1]}, channels], a group each", weights, x)
    return _shape(x, planes)


@op("et_vk.q8ta_conv2d_dw.default", _BEFORE + _AFTER, shape=_depthwise_shape)
def q8ta_conv2d_dw(
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
) -> Iterator[Dispatch]:
    """Weights are [height, width, channel]."""
    require_int8(x, out)
    planes = _planes(x, weights.shape[-1], _window(kernel_size, stride, padding, dilation), int(groups))
    require(weights.dtype is DType.I8, "weights must be i8", weights)
    require(planes.taps <= DEPTH_MAX, f"sums over {planes.taps} products of int8 do not fit into 32 bits")
    epilogue = Epilogue(
        *(weight_scales, bias, input_scale, int(input_zero_point)),
        *(reciprocal(output_scale), int(output_zero_point), activation_of(activation)),
    )
    epilogue.check(planes.groups, planes.groups)
    if out.numel == 0:
        return
    # Channels do not see each other: to the kernels they are those of one group.
    together = replace(planes, groups=1, channels_in=planes.groups, channels=planes.groups)
    padded = together.padded
    packed = padded.packed
    yield pack(x, together, padded, epilogue, packed, {"IS_PLANAR": True})
    height, width = planes.window.size
    absent = {} if bias else {"added": "0.0"}
    yield Dispatch(
        kernel("q8_depthwise", HEIGHT=height, WIDTH=width, **epilogue.declarations, **absent),
        x=packed,
        weights=weights.packed("int8 taps", count=together.quads * planes.taps, storage=Storage.U32),
        scales=weight_scales,
        bias=bias,
        out=out,
        **padded.parameters(epilogue, planes.groups),
        threads=planes.places * together.quads,
    )


@packing("int8 taps")
def _taps(elements: HostArray) -> HostArray:
    """[height, width, channel] as [channel / 4][tap], four channels to a word."""
    taps = elements.reshape(-1, elements.shape[-1])
    padded = np.pad(taps, ((0, 0), (0, -taps.shape[1] % 4)))
    return np.ascontiguousarray(padded.reshape(len(taps), -1, 4).transpose(1, 0, 2))
