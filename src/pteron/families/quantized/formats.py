"""The formats of quantised weights: what a product takes, and how they are packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pteron.dtypes import DType
from pteron.families.quantized.packing import (
    PackedWeights,
    byte_rows,
    padded_words,
    scales_by_row,
    sums_by_row,
    words_per_group,
)
from pteron.ops import AnyInt, LiveShape, Operand, Weight, require


def linear_shape(x: Operand, weights: Operand) -> LiveShape:
    fits = x.rank >= 1 and weights.rank == 2
    require(fits, "a 4-bit product takes x [..., k] and weights [n, k / 2]", x, weights)
    (columns, row_bytes), depth = weights.shape, x.shape[-1]
    require(depth > 0, "a product needs something to add up", x, weights)
    fits = depth % 4 == 0 and row_bytes % 4 == 0 and 0 <= row_bytes * 2 - depth < 8
    require(fits, "rows of 4-bit weights must cover x's columns, in whole words", x, weights)
    return (*x.shape[:-1], columns)


def words_of(weights: Operand, scales: Operand, group_size: AnyInt, depth: AnyInt) -> PackedWeights:
    """4-bit weights in groups, for x with `depth` columns."""
    require(weights.dtype.itemsize == 1, "4-bit weights must be two to a byte", weights)
    columns, depth, group = int(weights.shape[0]), int(depth), words_per_group(group_size)
    fits = scales.rank == 2 and scales.shape[0] * 8 * group >= depth and scales.shape[1] >= columns
    require(fits, f"scales must be [k / {8 * group}, n]", scales, weights)
    by_row = scales_by_row(scales, columns, -(-depth // (8 * group)))
    rows, pitch = padded_words(weights)
    return PackedWeights(rows, by_row, columns, depth, pitch, group)


def check_bias(bias: Operand, weights: Operand) -> None:
    fits = bias.rank == 1 and bias.numel >= weights.shape[0]
    require(fits, "bias must be [n], one value per row of weights", bias, weights)


def sums_of(weight_sums: Operand, weights: Operand, group_size: AnyInt, depth: AnyInt) -> Weight | None:
    """The sums of groups of weights [column][group], or None if some are missing."""
    columns, group = weights.shape[0], words_per_group(group_size)
    groups = -(-depth // (8 * group))
    is_full = weight_sums.rank == 2 and weight_sums.shape[0] >= groups and weight_sums.shape[1] >= columns
    if weight_sums.dtype is not DType.I32 or not is_full:
        return None
    return sums_by_row(weight_sums, columns, groups)


def padded_depth(x: Operand) -> int:
    """Columns of x in whole vec4s."""
    return int(-(-x.shape[-1] // 4)) * 4


def bytes_of(
    x: Operand, weights: Operand, scales: Operand, minima: Operand | None, group_size: AnyInt
) -> PackedWeights:
    """8-bit weights in groups, for x."""
    columns, depth = map(int, weights.shape)
    require(depth == x.shape[-1], "weights must have x's columns", weights, x)
    by_row, minima_by_row = factors_by_row(weights, scales, minima, group_size)
    words, group = -(-depth // 8), words_per_group(group_size)
    packed = byte_rows(weights)
    sizes = columns, padded_depth(x), words, group
    return PackedWeights(packed, by_row, *sizes, bits=8, minima=minima_by_row)


def factors_by_row(
    weights: Operand, scales: Operand, minima: Operand | None, group_size: AnyInt
) -> tuple[Weight, Weight | None]:
    """Scales and minima as kernels read them."""
    require(weights.dtype is DType.I8, "8-bit weights must be i8", weights)
    (rows, columns), size = weights.shape, 8 * words_per_group(group_size)
    groups = -(-columns // size)
    for each in (scales, minima):
        shape = (groups, rows) if each is None else each.shape if each.rank != 1 else (1, *each.shape)
        fits = len(shape) == 2 and shape[0] >= groups and shape[1] >= rows
        require(fits, f"scales and minima must be [{groups}, {rows}], groups of {size}", each, weights)
    least = None if minima is None else scales_by_row(minima, rows, groups)
    return scales_by_row(scales, rows, groups), least


def bytes_shape(x: Operand, weights: Operand, *_: object) -> LiveShape:
    fits = x.rank >= 1 and weights.rank == 2 and weights.shape[1] == x.shape[-1]
    require(fits, "an 8-bit product takes x [..., k] and weights [n, k]", x, weights)
    return (*x.shape[:-1], weights.shape[0])


@dataclass(frozen=True, slots=True)
class Format:
    """Weights in groups of a multiple of eight, each group with a scale."""

    shape: Callable[[Operand, Operand], LiveShape]  # of a product of x and weights
    packed: Callable[[Operand, Operand, Operand, Operand | None, AnyInt], PackedWeights]
    per_word: int  # weights
    layouts: tuple[str, ...]  # whose rows are whole words, the lowest bits first


FORMATS = {  # by bits of a weight
    4: Format(
        linear_shape,
        lambda x, weights, scales, minima, group_size: words_of(weights, scales, group_size, x.shape[-1]),
        8,
        ("words", "words, padded"),
    ),
    8: Format(bytes_shape, bytes_of, 4, ("bytes by row",)),
}
