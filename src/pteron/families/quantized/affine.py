"""Numbers to quantised ones and back: q = clamp(round(x / scale) + zero_point), x = (q - zero_point) · scale.

The parameters are one pair for a tensor, or a pair for every channel, token or block. The order of operations
is PyTorch's, so that a quantised number is PyTorch's to the bit: x is multiplied by the reciprocal, and what
lies between two whole numbers goes to the even one. All is computed in f32, whatever types are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pteron.families.quantized.blocks import Blocks, blocks, channels, tokens, whole_tensor
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, op, require, same_shape
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

FLOAT_MAX = float(np.finfo(np.float32).max)
WHOLE_MAX = 2147483520.0  # the largest float below 2^31

# The WGSL of one element. Per token, the zero point is added before rounding: a clamp that changes nothing
# keeps compilers from making one operation of the product and the sum, which would round differently.
QUANTIZE = "R(clamp(round(f32(value) * scale(block)) + zero(block), params.low, params.high))"
QUANTIZE_TOKEN = (
    "R(clamp(round(clamp(f32(value) * scale(block), -4294967296.0, 4294967296.0) + zero(block)), "
    "params.low, params.high))"
)
DEQUANTIZE = "R((f32(value) - zero(block)) * scale(block))"
DEQUANTIZE_WHOLE = "R(f32(i32(value) - i32(zero_points[block])) * scale(block))"  # subtracts integers


def quantize(
    x: Operand,
    parts: Blocks,
    scales: Operand,
    zero_points: Operand | None,
    quant_min: float | None,
    quant_max: float | None,
    out: Operand,
    convert: str = QUANTIZE,
) -> Iterator[Dispatch]:
    """x quantised by tensors of parameters."""
    _check_parameters(parts, scales, zero_points)
    reciprocals = Scratch(parts.count)
    yield Dispatch(
        kernel("reciprocals"), scales=scales, out=reciprocals, count=parts.count, threads=parts.count
    )
    bounds = quantized_bounds(out, quant_min, quant_max)
    yield from _convert(convert, x, parts, out, scales=reciprocals, zero_points=zero_points, **bounds)


def dequantize(
    x: Operand,
    parts: Blocks,
    scales: Operand,
    zero_points: Operand | None,
    out: Operand,
    convert: str = DEQUANTIZE,
) -> Iterator[Dispatch]:
    """x back from what it was quantised to, by tensors of parameters."""
    _check_parameters(parts, scales, zero_points)
    require(out.dtype.is_float, "what is dequantised must be of floats", out)
    is_whole = zero_points is not None and not (zero_points.dtype.is_float or x.dtype.is_float)
    expression = convert if is_whole else DEQUANTIZE
    yield from _convert(expression, x, parts, out, scales=scales, zero_points=zero_points)


def reciprocal(scale: float) -> float:
    """1 / scale, as a float holds it."""
    fits = 1 / FLOAT_MAX <= abs(scale) <= FLOAT_MAX
    require(fits, f"scale {scale} must be a number other than zero that has a reciprocal in f32")
    return 1 / scale


def quantized_bounds(out: Operand, quant_min: float | None, quant_max: float | None) -> dict[str, float]:
    """`low` and `high` of a kernel; None stands for the bounds of the output's type."""
    require(not out.dtype.is_float, "what is quantised must be of integers", out)
    low, high = quantized_range(out)
    low_given = low if quant_min is None else quant_min
    high_given = high if quant_max is None else quant_max
    require(
        low <= low_given <= high_given <= high,
        f"bounds {low_given} to {high_given} must lie within those of {out.dtype}, {low} to {high}",
        out,
    )
    return {"low": float(low_given), "high": min(float(high_given), WHOLE_MAX)}


def quantized_range(out: Operand) -> tuple[int, int]:
    """The least and the greatest number of an integer type; 64 bits are held in 32."""
    bits, is_unsigned = min(8 * out.dtype.itemsize, 32), out.dtype.numpy.kind == "u"
    return (0, (1 << bits) - 1) if is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _check_parameters(parts: Blocks, scales: Operand, zero_points: Operand | None) -> None:
    for what, tensor in (("scale", scales), ("zero point", zero_points)):
        fits = tensor is None or tensor.numel == parts.count
        require(fits, f"{parts.count} blocks need as many {what}s", tensor)


def _convert(
    expression: str, x: Operand, parts: Blocks, out: Operand, **arguments: Any
) -> Iterator[Dispatch]:
    absent = {
        name: text
        for binding, name, text in (
            ("scales", "scale", "params.scale"),
            ("zero_points", "zero", "params.zero_point"),
        )
        if arguments.get(binding) is None
    }
    yield Dispatch(
        kernel("affine", convert=expression, **absent),
        **{"scale": 1.0, "zero_point": 0.0, "low": 0.0, "high": 0.0, **arguments},
        x=x,
        out=out,
        count=x.numel,
        blocks=parts.count,
        rank=len(parts.sizes),
        sizes=parts.sizes,
        strides=parts.strides,
        threads=x.numel,
    )


# One pair of parameters for a tensor ------------------------------------------------------------


@op(
    "quantized_decomposed.quantize_per_tensor.default",
    "input scale:float zero_point:int quant_min:int quant_max:int dtype:ignored -> out",
    shape=same_shape,
)
def quantize_per_tensor(
    x: Operand, scale: float, zero_point: AnyInt, quant_min: AnyInt, quant_max: AnyInt, out: Operand
) -> Iterator[Dispatch]:
    bounds = quantized_bounds(out, int(quant_min), int(quant_max))
    numbers = {"scale": reciprocal(scale), "zero_point": float(zero_point)}
    yield from _convert(QUANTIZE, x, whole_tensor(x), out, **numbers, **bounds)


@op(
    "quantized_decomposed.dequantize_per_tensor.default",
    "input scale:float zero_point:int quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored "
    "-> out",
    shape=same_shape,
)
def dequantize_per_tensor(x: Operand, scale: float, zero_point: AnyInt, out: Operand) -> Iterator[Dispatch]:
    require(out.dtype.is_float, "what is dequantised must be of floats", out)
    numbers = {"scale": scale, "zero_point": float(zero_point)}
    yield from _convert(DEQUANTIZE, x, whole_tensor(x), out, **numbers)


@op(
    "quantized_decomposed.quantize_per_tensor.tensor",
    "input scale zero_point quant_min:int quant_max:int dtype:ignored -> out",
    shape=same_shape,
)
def quantize_per_tensor_tensor(
    x: Operand, scale: Operand, zero_point: Operand, quant_min: AnyInt, quant_max: AnyInt, out: Operand
) -> Iterator[Dispatch]:
    yield from quantize(x, whole_tensor(x), scale, zero_point, int(quant_min), int(quant_max), out)


@op(
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "input scale zero_point quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored -> out",
    shape=same_shape,
)
def dequantize_per_tensor_tensor(
    x: Operand, scale: Operand, zero_point: Operand, out: Operand
) -> Iterator[Dispatch]:
    yield from dequantize(x, whole_tensor(x), scale, zero_point, out)


# A pair for every channel, token or block -------------------------------------------------------


@op(
    "quantized_decomposed.quantize_per_channel.default",
    "input scales zero_points axis:int quant_min:int quant_max:int dtype:ignored -> out",
    shape=same_shape,
)
def quantize_per_channel(
    x: Operand,
    scales: Operand,
    zero_points: Operand,
    axis: AnyInt,
    quant_min: AnyInt,
    quant_max: AnyInt,
    out: Operand,
) -> Iterator[Dispatch]:
    yield from quantize(x, channels(x, axis), scales, zero_points, int(quant_min), int(quant_max), out)


@op(
    "quantized_decomposed.dequantize_per_channel.default",
    "input scales zero_points? axis:int quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored "
    "-> out",
    shape=same_shape,
)
def dequantize_per_channel(
    x: Operand, scales: Operand, zero_points: Operand | None, axis: AnyInt, out: Operand
) -> Iterator[Dispatch]:
    yield from dequantize(x, channels(x, axis), scales, zero_points, out, DEQUANTIZE_WHOLE)


@op(
    "quantized_decomposed.quantize_per_token.default",
    "input scales zero_points quant_min:int quant_max:int dtype:ignored -> out",
    shape=same_shape,
)
def quantize_per_token(
    x: Operand, scales: Operand, zero_points: Operand, quant_min: AnyInt, quant_max: AnyInt, out: Operand
) -> Iterator[Dispatch]:
    bounds = int(quant_min), int(quant_max)
    yield from quantize(x, tokens(x), scales, zero_points, *bounds, out, QUANTIZE_TOKEN)


@op(
    "quantized_decomposed.dequantize_per_token.default",
    "input scales zero_points quant_min:ignored quant_max:ignored dtype:ignored output_dtype:ignored -> out",
    shape=same_shape,
)
def dequantize_per_token(
    x: Operand, scales: Operand, zero_points: Operand, out: Operand
) -> Iterator[Dispatch]:
    yield from dequantize(x, tokens(x), scales, zero_points, out, DEQUANTIZE_WHOLE)


@op(
    "torchao.quantize_affine.default",
    "input block_size:ints scale zero_point? output_dtype:ignored quant_min:number? quant_max:number? -> out",
    shape=same_shape,
)
def quantize_affine(
    x: Operand,
    block_size: Sequence[AnyInt],
    scale: Operand,
    zero_point: Operand | None,
    quant_min: float | None,
    quant_max: float | None,
    out: Operand,
) -> Iterator[Dispatch]:
    yield from quantize(x, blocks(x, block_size), scale, zero_point, quant_min, quant_max, out)


@op(
    "torchao.dequantize_affine.default",
    "input block_size:ints scale zero_point? input_dtype:ignored quant_min:ignored quant_max:ignored "
    "output_dtype:ignored -> out",
    shape=same_shape,
)
def dequantize_affine(
    x: Operand, block_size: Sequence[AnyInt], scale: Operand, zero_point: Operand | None, out: Operand
) -> Iterator[Dispatch]:
    yield from dequantize(x, blocks(x, block_size), scale, zero_point, out)
