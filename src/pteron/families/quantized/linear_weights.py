"""Linear layers of floats with weights of 4 or 8 bits and a scale per output column."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import DType
from pteron.families.quantized import alone
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.linear_q4 import product
from pteron.families.quantized.packing import Words, byte_rows, nibble_rows, scales_by_row
from pteron.graph import Shape
from pteron.ops import Dispatch, Operand, Scratch, Target, Weight, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _per_channel(
    x: Operand, weights: Operand, packed: Weight, scales: Operand, library: str, out: Operand, target: Target
) -> Iterator[Dispatch]:
    """The product with packed weights; rows of x that are no whole vec4s are filled up first."""
    columns, depth = weights.shape[0], x.shape[-1]
    require(depth > 0, "a product needs something to add up", x, weights)
    require(scales.rank == 1 and scales.numel >= columns, f"scales must be {columns}, one per row", scales)
    padded = -(-depth // 4) * 4
    words = -(-depth // 8)
    # One scale serves a row: a group may be longer than it, so that q4_thread adds up whole blocks.
    group = -(-words // alone.WORDS) * alone.WORDS
    factors = Words(packed, scales_by_row(scales, columns, 1), columns, padded, words, group, library)
    source: Operand | Scratch = x
    if padded != depth:
        rows = x.numel // depth
        source = Scratch(rows * padded, x.storage)
        yield Dispatch(
            kernel("q4_pad"), x=x, out=source, rows=rows, depth=depth, padded=padded, threads=rows * padded
        )
    yield from product(source, factors, Ends((out,)), target)


def _qcs4w_shape(x: Operand, weight: Operand, scales: Operand) -> Shape:
    fits = x.rank >= 1 and weight.rank == 2 and 2 * weight.shape[1] >= x.shape[-1]
    require(fits, "a 4-bit product takes x [..., k] and weights [n, at least k / 2]", x, weight)
    return (*x.shape[:-1], weight.shape[0])


@op("et_vk.linear_qcs4w.default", "self weight scales -> out", shape=_qcs4w_shape)
def linear_qcs4w(
    x: Operand, weight: Operand, scales: Operand, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """The higher nibble of a byte is the even column, and all are stored as their value plus 8."""
    require(weight.dtype is DType.U8, "4-bit weights must be u8, two to a byte", weight)
    packed = nibble_rows(weight, x.shape[-1])
    yield from _per_channel(x, weight, packed, scales, "words", out, target)


def _int8_shape(x: Operand, mat2: Operand, scales: Operand) -> Shape:
    fits = x.rank >= 1 and mat2.rank == 2 and mat2.shape[1] == x.shape[-1]
    require(fits, "an 8-bit product takes x [..., k] and weights [n, k]", x, mat2)
    return (*x.shape[:-1], mat2.shape[0])


@op("aten._weight_int8pack_mm.default", "self mat2 scales -> out", shape=_int8_shape)
def weight_int8pack_mm(
    x: Operand, mat2: Operand, scales: Operand, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    require(mat2.dtype is DType.I8, "8-bit weights must be i8", mat2)
    yield from _per_channel(x, mat2, byte_rows(mat2), scales, "words8", out, target)
