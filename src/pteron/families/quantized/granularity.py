"""The operators that quantise and dequantise: by one pair of parameters for a tensor, or by a pair for every
channel, token or block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.quantized.affine import (
    DEQUANTIZE,
    DEQUANTIZE_WHOLE,
    QUANTIZE,
    QUANTIZE_TOKEN,
    WHOLE_TENSOR,
    blocks,
    channels,
    convert,
    dequantize,
    quantize,
    quantized_bounds,
    reciprocal,
    tokens,
)
from pteron.ops import AnyInt, Dispatch, Operand, op, require, same_shape

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
    yield from convert(QUANTIZE, x, WHOLE_TENSOR, out, **numbers, **bounds)


@op(
    "quantized_decomposed.dequantize_per_tensor.default",
    "input scale:float zero_point:int quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored "
    "-> out",
    shape=same_shape,
)
def dequantize_per_tensor(x: Operand, scale: float, zero_point: AnyInt, out: Operand) -> Iterator[Dispatch]:
    require(out.dtype.is_float, "what is dequantised must be of floats", out)
    numbers = {"scale": scale, "zero_point": float(zero_point)}
    yield from convert(DEQUANTIZE, x, WHOLE_TENSOR, out, **numbers)


@op(
    "quantized_decomposed.quantize_per_tensor.tensor",
    "input scale zero_point quant_min:int quant_max:int dtype:ignored -> out",
    shape=same_shape,
)
def quantize_per_tensor_tensor(
    x: Operand, scale: Operand, zero_point: Operand, quant_min: AnyInt, quant_max: AnyInt, out: Operand
) -> Iterator[Dispatch]:
    yield from quantize(x, WHOLE_TENSOR, scale, zero_point, int(quant_min), int(quant_max), out)


@op(
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "input scale zero_point quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored -> out",
    shape=same_shape,
)
def dequantize_per_tensor_tensor(
    x: Operand, scale: Operand, zero_point: Operand, out: Operand
) -> Iterator[Dispatch]:
    yield from dequantize(x, WHOLE_TENSOR, scale, zero_point, out)


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
