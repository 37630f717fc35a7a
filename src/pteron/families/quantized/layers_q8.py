"""Convolutions and linear layers with int8 weights, a scale per output channel, and int8 activations with one
scale for all. Every layer takes the same first arguments (`_FIRST`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.convolution.geometry import Geometry
from pteron.families.quantized.affine import reciprocal
from pteron.families.quantized.elements_q8 import require_int8
from pteron.families.quantized.product_q8 import (
    DEPTH_MAX,
    Int8Epilogue,
    pack,
    packed_input,
    padded,
    parameters,
    product,
)
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, define, numel, op, require
from pteron.ops.operand import HostArray, packing
from pteron.ops.window import SlidingWindow
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

Ints = Sequence[AnyInt]

_FIRST = (
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales output_scale:float "
    "output_zero_point:int bias? "
)
_FIRST_COUNT = len(_FIRST.split())
_WINDOW = "kernel_size:ints stride:ints padding:ints "
_LAST = "dilation:ints groups:int activation:str -> out"
_ACTIVATIONS: dict[str, dict[str, bool]] = {"none": {}, "relu": {"HAS_RELU": True}}


def _epilogue(first: Sequence[Any], activation: str, out: Operand) -> Int8Epilogue:
    """How sums become int8 outputs, by a layer's first arguments."""
    x, x_scale, x_zero, _, _, weight_scales, out_scale, out_zero, bias = first
    require_int8(x, out)
    known = ", ".join(_ACTIVATIONS)
    require(activation in _ACTIVATIONS, f"activation {activation!r} must be one of {known}")
    inverse, after = reciprocal(out_scale), _ACTIVATIONS[activation]
    return Int8Epilogue(weight_scales, bias, x_scale, int(x_zero), inverse, int(out_zero), after)


# Convolutions ------------------------------------------------------------------------------------


def _planes(
    x: Operand,
    channels: AnyInt,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: AnyInt,
    output_padding: Ints | None = None,
) -> Geometry:
    """The sizes of a convolution of one or several images; of a transposed one, if it has an
    `output_padding`."""
    window = SlidingWindow.of(
        *([int(size) for size in sizes] for sizes in (kernel_size, stride, padding, dilation))
    )
    groups = int(groups)
    fits = x.rank in (3, 4) and min(x.shape[-2:]) > 0
    require(fits, "x must be [image, channel, height, width], or one image, with places", x)
    fits = groups > 0 and x.shape[-3] % groups == 0 and channels % groups == 0
    require(fits, f"{groups} groups must divide the channels of x and of the output, {channels}", x)
    plane = x.shape[-2], x.shape[-1]
    more = None if output_padding is None else [int(size) for size in output_padding]
    return Geometry(
        window,
        transposed=more is not None,
        batch=x.shape[0] if x.rank == 4 else 1,
        groups=groups,
        channels=x.shape[-3] // groups,
        filters=channels // groups,
        plane=plane,
        out_plane=window.places(plane) if more is None else window.spread(plane, more),
    )


def _sizes(arguments: Sequence[Any]) -> Geometry:
    """The sizes of a regular or a transposed convolution, by all its inputs."""
    x, weights = arguments[0], arguments[3]
    kernel_size, stride, padding, *more, dilation, groups, _ = arguments[_FIRST_COUNT:]
    output_padding = more[0] if more else None
    require(weights.rank == 2, "weights must be [channel, tap · channel of a group]", weights)
    return _planes(x, weights.shape[0], kernel_size, stride, padding, dilation, groups, output_padding)


def _conv2d_shape(*arguments: Any) -> LiveShape:
    planes = _sizes(arguments)
    return (*arguments[0].shape[:-3], planes.rows, *planes.out_plane)


def q8ta_conv2d(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """Weights are [channel, tap · channel of a group], rows padded at their end."""
    *inputs, out = arguments
    planes, epilogue = _sizes(inputs), _epilogue(inputs[:_FIRST_COUNT], inputs[-1], out)
    yield from product(inputs[0], inputs[3], inputs[4], planes, epilogue, out, target)


# Pointwise convolutions have a name of their own, and windows of one element.
for _name, _more in (("", ""), ("_pw", ""), ("_transposed", "output_padding:ints ")):
    _signature = _FIRST + _WINDOW + _more + _LAST
    define(f"et_vk.q8ta_conv2d{_name}.default", _signature, shape=_conv2d_shape, compute=q8ta_conv2d)


# Depthwise convolutions --------------------------------------------------------------------------


def _depthwise_shape(*arguments: Any) -> LiveShape:
    x, weights = arguments[0], arguments[3]
    planes = _planes(x, numel(weights.shape[2:]), *arguments[_FIRST_COUNT:-1])
    size = planes.window.size
    fits = weights.rank == 3 and weights.shape[:2] == size and planes.channels == planes.filters == 1
    require(fits, f"depthwise weights must be [{size[0]}, {size[1]}, channels], a group each", weights, x)
    return (*x.shape[:-3], planes.groups, *planes.out_plane)


@op("et_vk.q8ta_conv2d_dw.default", _FIRST + _WINDOW + _LAST, shape=_depthwise_shape)
def q8ta_conv2d_dw(*arguments: Any) -> Iterator[Dispatch]:
    """Every channel has a window of its own: weights are [height, width, channel]."""
    *inputs, out = arguments
    x, weights = inputs[0], inputs[3]
    epilogue = _epilogue(inputs[:_FIRST_COUNT], inputs[-1], out)
    planes = _planes(x, weights.shape[-1], *inputs[_FIRST_COUNT:-1])
    require(weights.dtype is DType.I8, "weights must be i8", weights)
    require(planes.taps <= DEPTH_MAX, f"sums over {planes.taps} products of int8 do not fit into 32 bits")
    epilogue.check(planes.groups, planes.groups)
    if out.numel == 0:
        return
    # Channels are independent, so to the kernels they are the channels of one group.
    together = replace(planes, groups=1, channels=planes.groups, filters=planes.groups)
    source = padded(together)
    packed = packed_input(source)
    yield pack(x, together, source, epilogue, packed, is_planar=True)
    height, width = planes.window.size
    yield Dispatch(
        kernel("q8_depthwise"),
        HEIGHT=height,
        WIDTH=width,
        x=packed,
        weights=weights.packed("int8 taps", count=together.filter_quads * planes.taps, storage=Storage.U32),
        out=out,
        **epilogue.arguments,
        **parameters(source, epilogue, planes.groups),
        threads=planes.pixels * together.filter_quads,
    )


@packing("int8 taps")
def _taps(elements: HostArray) -> HostArray:
    """[height, width, channel] as [channel / 4][tap], four channels to a word."""
    taps = elements.reshape(-1, elements.shape[-1])
    padded = np.pad(taps, ((0, 0), (0, -taps.shape[1] % 4)))
    return np.ascontiguousarray(padded.reshape(len(taps), -1, 4).transpose(1, 0, 2))


# Linear layers -----------------------------------------------------------------------------------


def _linear_shape(x: Operand, input_scale: float, zero: AnyInt, weights: Operand, *_: object) -> LiveShape:
    fits = x.rank >= 1 and weights.rank == 2 and x.shape[-1] <= weights.shape[1]
    require(fits, "an int8 product takes x [..., k] and weights [n, at least k]", x, weights)
    return (*x.shape[:-1], weights.shape[0])


def _rows(x: Operand, weights: Operand, out: Operand) -> Geometry:
    """Rows as images of one pixel."""
    columns = weights.shape[0]
    rows = out.numel // columns if columns else 0
    return Geometry(SlidingWindow.of((1, 1)), False, rows, 1, x.shape[-1], columns, (1, 1), (1, 1))


def q8ta_linear(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """int8 to int8."""
    *first, activation, out = arguments
    epilogue = _epilogue(first, activation, out)
    yield from product(first[0], first[3], first[4], _rows(first[0], first[3], out), epilogue, out, target)


# The exporter has a name for one row and a name for several; here the live shape decides.
for _name in ("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default"):
    define(_name, f"{_FIRST}activation:str -> out", shape=_linear_shape, compute=q8ta_linear)


@op(
    "et_vk.linear_q8ta_q8csw.default",
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales bias? -> out",
    shape=_linear_shape,
)
def linear_q8ta_q8csw(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """int8, or floats that become int8, to floats."""
    x, input_scale, input_zero_point, weights, weight_sums, weight_scales, bias, out = arguments
    require(out.dtype.is_float, "the output must be of floats: it has no scale", out)
    reciprocal(input_scale)
    numbers = input_scale, int(input_zero_point), 1.0, 0
    epilogue = Int8Epilogue(weight_scales, bias, *numbers, {"TO_FLOATS": True})
    yield from product(x, weights, weight_sums, _rows(x, weights, out), epilogue, out, target)
