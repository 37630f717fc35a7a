"""Linear layers of floats with 4-bit weights in groups, a scale per group, or with 4-bit or 8-bit weights and
a scale per output column.

Weights stay packed, eight to a word, the first column in the lowest bits; scales become [row][group].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pteron.dtypes import DType
from pteron.families.linear.product import ROWS_FEW
from pteron.families.quantized import digits, tiled_q4, windows
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.packing import (
    Words,
    byte_rows,
    nibble_rows,
    padded_words,
    scales_by_row,
    sums_by_row,
    words_per_group,
)
from pteron.families.quantized.tiled_q4 import PARTIAL, QUANTIZED, SCALED, Int8, merge_parts
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, Weight, op, require
from pteron.ops.row_layout import row_groups, shared_rows, split
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def linear_shape(x: Operand, weights: Operand) -> Shape:
    require(
        x.rank >= 1 and weights.rank == 2,
        "a 4-bit product takes x [..., k] and weights [n, k / 2]",
        x,
        weights,
    )
    columns, row_bytes = weights.shape
    depth = x.shape[-1]
    require(depth > 0, "a product needs something to add up", x, weights)
    require(
        depth % 4 == 0 and row_bytes % 4 == 0 and row_bytes * 2 >= depth,
        "rows of 4-bit weights must cover x's columns, in whole words",
        x,
        weights,
    )
    return (*x.shape[:-1], columns)


def _linear(
    x: Operand,
    weights: Operand,
    scales: Operand,
    group_size: AnyInt,
    bias: Operand | None,
    out: Operand,
    target: Target,
    int8: Int8 | None = None,
    residual: Operand | None = None,
) -> Iterator[Dispatch]:
    packed = words_of(weights, scales, group_size, x.shape[-1])
    if bias is not None:
        check_bias(bias, weights)
    yield from product(x, packed, Ends((out,), bias, residual), target, int8)


def words_of(weights: Operand, scales: Operand, group_size: AnyInt, depth: int) -> Words:
    """4-bit weights in groups, for x with `depth` columns."""
    require(weights.dtype.itemsize == 1, "4-bit weights must be two to a byte", weights)
    columns, group = weights.shape[0], words_per_group(group_size)
    fits = scales.rank == 2 and scales.shape[0] * 8 * group >= depth and scales.shape[1] >= columns
    require(fits, f"scales must be [k / {8 * group}, n]", scales, weights)
    by_row = scales_by_row(scales, columns, -(-depth // (8 * group)))
    rows, pitch = padded_words(weights)
    return Words(rows, by_row, columns, depth, pitch, group)


def check_bias(bias: Operand, weights: Operand) -> None:
    fits = bias.rank == 1 and bias.numel >= weights.shape[0]
    require(fits, "bias must be [n], one value per row of weights", bias, weights)


def sums_of(weight_sums: Operand, weights: Operand, group_size: AnyInt, depth: int) -> Weight | None:
    """The sums of groups of weights [column][group], or None if some are missing."""
    columns, group = weights.shape[0], words_per_group(group_size)
    groups = -(-depth // (8 * group))
    is_full = weight_sums.rank == 2 and weight_sums.shape[0] >= groups and weight_sums.shape[1] >= columns
    if weight_sums.dtype is not DType.I32 or not is_full:
        return None
    return sums_by_row(weight_sums, columns, groups)


def product(
    x: Operand | Scratch,
    packed: Words,
    ends: Ends,
    target: Target,
    int8: Int8 | None = None,
) -> Iterator[Dispatch]:
    """The product by the kernel for its shape and device (docs/kernels-quantized.md), in parts if k is
    deep."""
    columns, words = packed.columns, -(-packed.depth // 8)
    rows = ends.count // columns if columns else 0
    x_scales, x_zeros = (int8.scales, int8.zeros) if int8 else (None, None)
    if digits.suits(target, rows, packed):
        yield digits.product(x, packed, ends, target, x_scales, x_zeros)
        return
    if not x_scales and (shape := windows.choose(target, x, rows, packed)):
        yield from windows.product(x, packed, ends, shape)
        return
    if not target.is_cpu and rows > ROWS_FEW:
        yield from tiled_q4.product(x, packed, ends, target, int8)
        return
    name, declarations, part = _kernel(target, rows, columns, words)
    parts = max(1, -(-words // part))
    declarations |= {"WORDS": words, "PITCH": packed.pitch, "GROUP": packed.group}
    declarations |= {"PARTS": parts, "PART": part, "QUADS": packed.depth // 4}
    declarations |= (QUANTIZED if int8 else {}) | (
        {"use_words": packed.library} if packed.library != "words" else {}
    )
    if name == "q4_thread":
        declarations |= thread_words(packed.library, packed.pitch, packed.group)
    factors: dict[str, Any] = {"x": x, "weights": packed.weights, "scales": packed.scales}
    factors |= {"x_zeros": x_zeros, "x_scales": x_scales}
    factors |= {"rows": rows, "columns": columns, **_grid(target, name, declarations, rows, columns)}
    finish = (SCALED if int8 else {}) | ends.declarations
    if parts == 1:
        yield Dispatch(kernel(name, **declarations, **finish), **factors, **ends.operands)
        return
    sums = Scratch(parts * ends.count)
    yield Dispatch(kernel(name, **declarations, **PARTIAL), **factors, out=sums)
    yield merge_parts(sums, ends, parts, rows, columns, finish, x_scales)


def _kernel(target: Target, rows: int, columns: int, words: int) -> tuple[str, dict[str, Any], int]:
    """(name, declarations, words of k per invocation) of the kernel for few rows or a software adapter."""
    if target.is_cpu:
        return "q4_thread", *thread_cut(rows, words)
    layout = shared_rows(target, 32, 1)
    return "q4_matvec", {"COLUMNS": matvec_columns(columns), **layout}, max(words, 1)


def _grid(
    target: Target, name: str, declarations: Mapping[str, Any], rows: int, columns: int
) -> dict[str, Any]:
    if name == "q4_thread":
        return {"threads": declarations["PARTS"] * thread_count(declarations["TILE"], rows, columns)}
    return {"groups": row_groups(target, declarations, -(-columns // declarations["COLUMNS"]) * rows)}


def matvec_columns(columns: int) -> int:
    """Columns per bundle: more reuse x better, fewer fill the device sooner. Measured on an H200."""
    return 4 if columns >= 8192 else 2 if columns >= 1024 else 1


@op(
    "et_vk.linear_q4gsw.default",
    "self weights weight_scales group_size:int bias? -> out",
    shape=lambda x, weights, *_: linear_shape(x, weights),
)
def linear_q4gsw(
    x: Operand,
    weights: Operand,
    weight_scales: Operand,
    group_size: AnyInt,
    bias: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    yield from _linear(x, weights, weight_scales, group_size, bias, out, target)


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    "input input_scales input_zp weights weight_sums weight_scales group_size:int bias? -> out",
    shape=lambda x, input_scales, input_zp, weights, *_: linear_shape(x, weights),
)
def linear_dq8ca_q4gsw(
    x: Operand,
    input_scales: Operand,
    input_zp: Operand,
    weights: Operand,
    weight_sums: Operand,
    weight_scales: Operand,
    group_size: AnyInt,
    bias: Operand | None,
    out: Operand,
    residual: Operand | None = None,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    fits = input_scales.numel == rows == input_zp.numel
    require(fits, "x needs one scale and one zero point per row", x, input_scales, input_zp)
    sums = sums_of(weight_sums, weights, group_size, x.shape[-1])
    int8 = Int8(input_scales, input_zp, sums)
    yield from _linear(x, weights, weight_scales, group_size, bias, out, target, int8, residual)


THREAD_TILE = 4  # rows of an invocation
THREAD_WIDE = 64  # maximum of columns of an invocation
THREAD_NARROW = 8  # and the minimum
THREAD_STRIPS = 16  # invocations, unless there are few columns: two vectors of 8 lanes or four of 4
BLOCK_WORDS = 4  # products that are added up one after the other
LOOPS_MAX = 60_000  # iterations of an invocation, below the limit of software adapters


def thread_cut(rows: int, words: int) -> tuple[dict[str, Any], int]:
    """(declarations, words of k per invocation) of q4_thread, for `rows` rows of x, `words` words long."""
    tile = min(THREAD_TILE, max(rows, 1))
    _, blocks = split(-(-words // BLOCK_WORDS), LOOPS_MAX // ((8 + THREAD_WIDE) * (1 + tile)))
    layout = {"TILE": tile, "WIDE": THREAD_WIDE, "NARROW": THREAD_NARROW, "STRIPS": THREAD_STRIPS}
    return layout, blocks * BLOCK_WORDS


def thread_words(library: str, pitch: int, group: int) -> dict[str, Any]:
    """How q4_thread reads weights: four words at once where rows and groups are multiples of four words."""
    if library != "words" or pitch % BLOCK_WORDS or group % BLOCK_WORDS:
        return {}
    return {"use_words": "words_wide", "load_block": "unpack_words(load_words(n, first))"}


def thread_count(tile: int, rows: int, columns: int) -> int:
    """Invocations of q4_thread for one part."""
    tiles = -(-rows // tile)
    wide = min(max(tiles * columns // THREAD_STRIPS, THREAD_NARROW), THREAD_WIDE)
    return tiles * -(-columns // wide)


def _per_channel(
    x: Operand, weights: Operand, packed: Weight, scales: Operand, library: str, out: Operand, target: Target
) -> Iterator[Dispatch]:
    """The product with packed weights; rows of x are padded to a multiple of four first."""
    columns, depth = weights.shape[0], x.shape[-1]
    require(depth > 0, "a product needs something to add up", x, weights)
    require(scales.rank == 1 and scales.numel >= columns, f"scales must be {columns}, one per row", scales)
    padded = -(-depth // 4) * 4
    words = -(-depth // 8)
    # A row has one scale. The group is rounded up to whole blocks of q4_thread.
    group = -(-words // BLOCK_WORDS) * BLOCK_WORDS
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
