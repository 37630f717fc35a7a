"""Linear layers of floats with 4-bit weights and a scale per group, or with 4-bit or 8-bit weights and a
scale per output column, and the kernel for each number of rows.

Weights stay packed, eight to a word, the first column in the lowest bits; scales become [row][group].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pteron.dtypes import DType
from pteron.families.linear.product import ROWS_FEW
from pteron.families.quantized import digits, tiled_q4, uniform
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import check_bias, linear_shape, padded_depth, sums_of, words_of
from pteron.families.quantized.packing import (
    Choice,
    PackedWeights,
    byte_rows,
    nibble_rows,
    scales_by_row,
)
from pteron.families.quantized.tiled_q4 import Int8
from pteron.ops import (
    AnyInt,
    Dispatch,
    LiveInt,
    LiveShape,
    Operand,
    Scratch,
    Target,
    Weight,
    bucket,
    op,
    require,
)
from pteron.ops.row_layout import row_groups, shared_rows, split
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def product(
    x: Operand | Scratch, packed: PackedWeights, epilogue: Epilogue, target: Target, int8: Int8 | None = None
) -> Iterator[Dispatch]:
    """The product by the kernel for its shape and device (docs/kernels-quantized.md), in parts if k is
    deep."""
    columns = packed.columns
    rows = epilogue.count // columns if columns else 0
    x_scales, x_zeros = (int8.scales, int8.zeros) if int8 else (None, None)
    if packed.choice and tiled_q4.are_groups_large(target, rows, packed.choice):
        if packed.choice.grouping is None:
            choice, launches = tiled_q4.group_rows(packed.choice, rows, target)
            yield from launches
            packed = replace(packed, choice=choice)
        yield from tiled_q4.product(x, packed, epilogue, target)
        return
    if digits.suits(target, rows, packed):
        yield digits.product(x, packed, epilogue, target, x_scales, x_zeros)
        return
    if not packed.choice and not x_scales and (arrays := uniform.choose(target, x, rows, packed)):
        yield from uniform.product(x, packed, epilogue, arrays)
        return
    if target.is_cpu:
        name, parts, alone = _by_threads(packed, rows)
    elif not packed.choice and rows > ROWS_FEW:
        yield from tiled_q4.product(x, packed, epilogue, target, int8)
        return
    else:
        name, parts, alone = _matvec(packed, rows, target)
    factors: dict[str, Any] = {**alone, **packed.operands, **packed.sizes, "x": x}
    factors |= {"QUADS": packed.depth // 4, "IN_BYTES": packed.bits == 8}
    factors |= {"x_zeros": x_zeros, "x_scales": x_scales, "rows": rows, "columns": columns}
    yield from tiled_q4.launch(name, factors, epilogue.arguments, epilogue.count, parts)


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
    residual: Operand | None = None,
    *,
    target: Target,
    int8: Int8 | None = None,
) -> Iterator[Dispatch]:
    packed = words_of(weights, weight_scales, group_size, x.shape[-1])
    if bias is not None:
        check_bias(bias, weights)
    yield from product(x, packed, Epilogue((out,), bias, residual), target, int8)


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    "input input_scales input_zp weights weight_sums weight_scales group_size:int bias? -> out",
    shape=lambda x, input_scales, input_zp, weights, *_: linear_shape(x, weights),
)
def linear_dq8ca_q4gsw(
    x: Operand, input_scales: Operand, input_zp: Operand, weights: Operand, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    weight_sums, weight_scales, group_size, *rest = arguments
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    fits = input_scales.numel == rows == input_zp.numel
    require(fits, "x needs one scale and one zero point per row", x, input_scales, input_zp)
    int8 = Int8(input_scales, input_zp, sums_of(weight_sums, weights, group_size, x.shape[-1]))
    yield from linear_q4gsw(x, weights, weight_scales, group_size, *rest, target=target, int8=int8)


# Of q4_thread, per invocation:
THREAD_TILE = 4  # rows
THREAD_WIDE = 64  # maximum of columns
THREAD_NARROW = 8  # minimum of columns
THREAD_STRIPS = 16  # invocations, unless there are few columns: two vectors of 8 lanes or four of 4
BLOCK_WORDS = 4  # words whose products are added up one after the other
LOOPS_MAX = 60_000  # iterations, below the limit of software adapters


def thread_cut(rows: AnyInt, words: int) -> tuple[dict[str, Any], AnyInt]:
    """(declarations, words of k per invocation) of q4_thread, for `rows` rows of x, `words` words long."""
    tile = min(THREAD_TILE, bucket(rows) if isinstance(rows, LiveInt) else max(rows, 1))
    _, blocks = split(-(-words // BLOCK_WORDS), LOOPS_MAX // ((8 + THREAD_WIDE) * (1 + tile)))
    layout = {"TILE": tile, "WIDE": THREAD_WIDE, "NARROW": THREAD_NARROW, "STRIPS": THREAD_STRIPS}
    return layout, blocks * BLOCK_WORDS


def _by_threads(packed: PackedWeights, rows: AnyInt) -> tuple[str, AnyInt, dict[str, Any]]:
    """(kernel, parts of k, what it is given and its grid): invocations that work alone."""
    layout, part = thread_cut(1 if packed.choice else rows, packed.words)
    parts = max(1, -(-packed.words // part))
    tiles = -(-rows // layout["TILE"])
    wide = min(max(tiles * packed.columns // THREAD_STRIPS, THREAD_NARROW), THREAD_WIDE)
    in_fours = packed.bits == 4 and packed.pitch % BLOCK_WORDS == packed.group % BLOCK_WORDS == 0
    threads = parts * tiles * -(-packed.columns // wide)
    return "q4_thread", parts, {**layout, "IN_FOURS": in_fours, "PART": part, "threads": threads}


def _matvec(packed: PackedWeights, rows: AnyInt, target: Target) -> tuple[str, AnyInt, dict[str, Any]]:
    """The same of a subgroup, or a workgroup, per row and few columns."""
    columns = packed.columns
    across = 4 if columns >= 8192 else 2 if columns >= 1024 else 1  # columns at once: measured on an H200
    layout = {"COLUMNS": across, **shared_rows(target, 32, 1)}
    groups = row_groups(target, layout, -(-columns // across) * rows)
    return "q4_matvec", 1, {**layout, "PART": max(packed.words, 1), "groups": groups}


def product_per_channel(
    x: Operand,
    weights: Operand,
    packed: Weight,
    scales: Operand,
    bits: int,
    out: Operand,
    target: Target,
    choice: Choice | None = None,
) -> Iterator[Dispatch]:
    """The product with packed weights, with a scale per column."""
    columns, depth = map(int, (weights.shape[0], x.shape[-1]))
    require(scales.rank == 1 and scales.numel >= columns, f"scales must be {columns}, one per row", scales)
    words = -(-depth // 8)
    # A row has one scale. The group is rounded up to whole blocks of q4_thread.
    group = -(-words // BLOCK_WORDS) * BLOCK_WORDS
    by_row = scales_by_row(scales, columns, 1)
    each = columns // choice.matrices if choice else columns
    factors = PackedWeights(packed, by_row, each, padded_depth(x), words, group, bits, choice)
    yield from product_padded(x, factors, Epilogue((out,)), target)


def product_padded(
    x: Operand, packed: PackedWeights, epilogue: Epilogue, target: Target
) -> Iterator[Dispatch]:
    """The product, after rows of x are padded to a multiple of four."""
    depth, padded = x.shape[-1], packed.depth
    require(depth > 0, "a product needs something to add up", x)
    source: Operand | Scratch = x
    if padded != depth:
        rows = x.numel // depth
        source = Scratch(rows * padded, x.storage)
        yield Dispatch(
            kernel("q4_pad"), x=x, out=source, rows=rows, depth=depth, padded=padded, threads=rows * padded
        )
    yield from product(source, packed, epilogue, target)


def _qcs4w_shape(x: Operand, weight: Operand, scales: Operand) -> LiveShape:
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
    yield from product_per_channel(x, weight, packed, scales, 4, out, target)


def _int8_shape(x: Operand, mat2: Operand, scales: Operand) -> LiveShape:
    fits = x.rank >= 1 and mat2.rank == 2 and mat2.shape[1] == x.shape[-1]
    require(fits, "an 8-bit product takes x [..., k] and weights [n, k]", x, mat2)
    return (*x.shape[:-1], mat2.shape[0])


@op("aten._weight_int8pack_mm.default", "self mat2 scales -> out", shape=_int8_shape)
def weight_int8pack_mm(
    x: Operand, mat2: Operand, scales: Operand, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    require(mat2.dtype is DType.I8, "8-bit weights must be i8", mat2)
    yield from product_per_channel(x, mat2, byte_rows(mat2), scales, 8, out, target)
