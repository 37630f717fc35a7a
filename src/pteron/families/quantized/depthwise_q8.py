"""Depthwise convolutions of int8 planes: every channel by a window of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.quantized.conv_q8 import SIGNATURE, Ints, planes_of, shape_of, window_of
from pteron.families.quantized.elements_q8 import require_int8
from pteron.families.quantized.planes import to_int8
from pteron.families.quantized.product_q8 import DEPTH_MAX, pack
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, op, require
from pteron.ops.operand import HostArray, packing
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _depthwise_shape(
    x: Operand, input_scale: float, input_zero_point: AnyInt, weights: Operand, *rest: Any
) -> Shape:
    *_, kernel_size, stride, padding, dilation, groups, _ = rest
    window = window_of(kernel_size, stride, padding, dilation)
    planes = planes_of(x, numel(weights.shape[2:]), window, groups)
    fits = (
        weights.rank == 3 and weights.shape[:2] == window.size and planes.channels_in == planes.channels == 1
    )
    size = list(window.size)
    require(fits, f"depthwise weights must be [{size[0]}, {size[1]}, channels], a group each", weights, x)
    return shape_of(x, planes)


@op("et_vk.q8ta_conv2d_dw.default", SIGNATURE, shape=_depthwise_shape)
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
    planes = planes_of(x, weights.shape[-1], window_of(kernel_size, stride, padding, dilation), groups)
    require(weights.dtype is DType.I8, "weights must be i8", weights)
    require(planes.taps <= DEPTH_MAX, f"sums over {planes.taps} products of int8 do not fit into 32 bits")
    epilogue = to_int8(
        *(weight_scales, bias, input_scale, input_zero_point),
        *(output_scale, output_zero_point, activation),
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
