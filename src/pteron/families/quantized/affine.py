"""Operators that quantise and dequantise: q = clamp(round(x / scale) + zero_point),
x = (q - zero_point) · scale, by one pair of parameters for a tensor, or one per channel, token or block.

The order of operations is PyTorch's, so that quantised numbers are equal bit for bit: x is multiplied by the
reciprocal, and ties round to even. All arithmetic is in f32. Elements of a tensor that share a scale and a
zero point are a block (`Blocks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, define, numel, op, require, same_shape
from pteron.ops.operand import contiguous_strides
from pteron.ops.shapes import axis, broadcast_strides, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

FLOAT_MAX = float(np.finfo(np.float32).max)
WHOLE_MAX = 2147483520.0  # the largest float below 2^31

# What affine.wgsl computes. Per token, the zero point is added before rounding.
_QUANTIZE = {"QUANTIZES": True}
_QUANTIZE_TOKEN = {"QUANTIZES": True, "ROUNDS_LAST": True}
_DEQUANTIZE: dict[str, bool] = {}
_DEQUANTIZE_WHOLE = {"IS_WHOLE": True}


def quantize(
    x: Operand,
    parts: Blocks,
    scales: Operand,
    zero_points: Operand | None,
    quant_min: float | None,
    quant_max: float | None,
    out: Operand,
    formula: Mapping[str, bool] = _QUANTIZE,
) -> Iterator[Dispatch]:
    """Quantise x by tensors of parameters."""
    _check_parameters(parts, scales, zero_points)
    reciprocals = Scratch(parts.count)
    yield Dispatch(
        kernel("reciprocals"), scales=scales, out=reciprocals, count=parts.count, threads=parts.count
    )
    bounds = quantized_bounds(out, quant_min, quant_max)
    yield from convert(formula, x, parts, out, scales=reciprocals, zero_points=zero_points, **bounds)


def dequantize(
    x: Operand,
    parts: Blocks,
    scales: Operand,
    zero_points: Operand | None,
    out: Operand,
    formula: Mapping[str, bool] = _DEQUANTIZE,
) -> Iterator[Dispatch]:
    """Dequantise x by tensors of parameters."""
    _check_parameters(parts, scales, zero_points)
    require(out.dtype.is_float, "what is dequantised must be of floats", out)
    is_whole = zero_points is not None and not (zero_points.dtype.is_float or x.dtype.is_float)
    chosen = formula if is_whole else _DEQUANTIZE
    yield from convert(chosen, x, parts, out, scales=scales, zero_points=zero_points)


def reciprocal(scale: float) -> float:
    """1 / scale, as a float holds it."""
    fits = 1 / FLOAT_MAX <= abs(scale) <= FLOAT_MAX
    require(fits, f"scale {scale} must be a number other than zero that has a reciprocal in f32")
    return 1 / scale


def quantized_bounds(out: Operand, quant_min: float | None, quant_max: float | None) -> dict[str, float]:
    """`low` and `high` of a kernel; None means the bounds of the output's type."""
    require(not out.dtype.is_float, "what is quantised must be of integers", out)
    low, high = quantized_range(out)
    low_given = low if quant_min is None else quant_min
    high_given = high if quant_max is None else quant_max
    require(
        low <= low_given <= high_given <= high,
        f"bounds {low_given} to {high_given} must be within those of {out.dtype}, {low} to {high}",
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


def convert(
    formula: Mapping[str, Any], x: Operand, parts: Blocks, out: Operand, **arguments: Any
) -> Iterator[Dispatch]:
    yield Dispatch(
        kernel("affine"),
        **formula,
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


RANK_MAX = 16  # separate dims that affine.wgsl walks


@dataclass(frozen=True, slots=True)
class Blocks:
    """A tensor in blocks: the dims to iterate over it, and by how many blocks one step along each dim
    advances."""

    count: AnyInt
    sizes: LiveShape
    strides: LiveShape


WHOLE_TENSOR = Blocks(1, (), ())


def blocks(x: Operand, block_size: Sequence[AnyInt]) -> Blocks:
    """Blocks of a size given per dim, numbered row by row."""
    block_sizes = [int(size) for size in block_size]
    fits = len(block_sizes) == x.rank and all(
        size == block or (block > 0 and size % block == 0)
        for size, block in zip(x.shape, block_sizes, strict=False)
    )
    require(fits, f"blocks of {block_sizes} must divide x, dim by dim", x)
    whole = [
        (1, size) if size == block else (size // block, block)
        for size, block in zip(x.shape, block_sizes, strict=True)
    ]
    dims = tuple(size for pair in whole for size in pair)
    numbered = tuple(size for count, _ in whole for size in (count, 1))
    sizes, (_, strides) = collapse(dims, contiguous_strides(dims), broadcast_strides(numbered, dims))
    require(len(sizes) <= RANK_MAX, f"blocks of {block_sizes} alternate more than {RANK_MAX} times", x)
    return Blocks(numel(numbered), sizes, strides)


def channels(x: Operand, dim: AnyInt) -> Blocks:
    """A block for every index along a dim."""
    at = axis(int(dim), x.rank)
    return blocks(x, [1 if d == at else size for d, size in enumerate(x.shape)])


def tokens(x: Operand) -> Blocks:
    require(x.rank > 0, "a scalar has no rows", x)
    return blocks(x, (*(1,) * (x.rank - 1), x.shape[-1]))


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
    yield from convert(_QUANTIZE, x, WHOLE_TENSOR, out, **numbers, **bounds)


@op(
    "quantized_decomposed.dequantize_per_tensor.default",
    "input scale:float zero_point:int quant_min:ignored quant_max:ignored dtype:ignored out_dtype:ignored "
    "-> out",
    shape=same_shape,
)
def dequantize_per_tensor(x: Operand, scale: float, zero_point: AnyInt, out: Operand) -> Iterator[Dispatch]:
    require(out.dtype.is_float, "what is dequantised must be of floats", out)
    yield from convert(_DEQUANTIZE, x, WHOLE_TENSOR, out, scale=scale, zero_point=float(zero_point))


# Tensors of parameters --------------------------------------------------------------------------

BlockRule: TypeAlias = Callable[..., Blocks]
_BOUNDS = "quant_min:int quant_max:int dtype:ignored -> out"
_UNUSED = "quant_min:ignored quant_max:ignored dtype:ignored"


def quantizer(
    name: str, arguments: str, blocks_of: BlockRule, formula: Mapping[str, bool] = _QUANTIZE
) -> None:
    """An operator `quantize_NAME` of x, scales, zero points and what `blocks_of` takes beside x."""

    def dispatches(x: Operand, scales: Operand, zero_points: Operand, *rest: Any) -> Iterator[Dispatch]:
        *of_blocks, low, high, out = rest
        yield from quantize(
            x, blocks_of(x, *of_blocks), scales, zero_points, int(low), int(high), out, formula
        )

    signature = f"{arguments} {_BOUNDS}"
    define(f"quantized_decomposed.quantize_{name}", signature, shape=same_shape, compute=dispatches)


def dequantizer(
    name: str, arguments: str, blocks_of: BlockRule, formula: Mapping[str, bool] = _DEQUANTIZE
) -> None:
    """An operator `dequantize_NAME`, as `quantizer` makes them."""

    def dispatches(
        x: Operand, scales: Operand, zero_points: Operand | None, *rest: Any
    ) -> Iterator[Dispatch]:
        *of_blocks, out = rest
        yield from dequantize(x, blocks_of(x, *of_blocks), scales, zero_points, out, formula)

    signature = f"{arguments}:ignored -> out"
    define(f"quantized_decomposed.dequantize_{name}", signature, shape=same_shape, compute=dispatches)


def _whole(x: Operand) -> Blocks:
    return WHOLE_TENSOR


quantizer("per_tensor.tensor", "input scale zero_point", _whole)
quantizer("per_channel.default", "input scales zero_points axis:int", channels)
quantizer("per_token.default", "input scales zero_points", tokens, _QUANTIZE_TOKEN)
dequantizer("per_tensor.tensor", f"input scale zero_point {_UNUSED} out_dtype", _whole)
dequantizer(
    "per_channel.default",
    f"input scales zero_points? axis:int {_UNUSED} out_dtype",
    channels,
    _DEQUANTIZE_WHOLE,
)
dequantizer(
    "per_token.default", f"input scales zero_points {_UNUSED} output_dtype", tokens, _DEQUANTIZE_WHOLE
)


@op(
    "torchao.quantize_affine.default",
    "input block_size:ints scale zero_point? output_dtype:ignored quant_min:number? quant_max:number? -> out",
    shape=same_shape,
)
def quantize_affine(x: Operand, block_size: Sequence[AnyInt], *arguments: Any) -> Iterator[Dispatch]:
    yield from quantize(x, blocks(x, block_size), *arguments)


@op(
    "torchao.dequantize_affine.default",
    "input block_size:ints scale zero_point? input_dtype:ignored quant_min:ignored quant_max:ignored "
    "output_dtype:ignored -> out",
    shape=same_shape,
)
def dequantize_affine(x: Operand, block_size: Sequence[AnyInt], *arguments: Any) -> Iterator[Dispatch]:
    yield from dequantize(x, blocks(x, block_size), *arguments)
