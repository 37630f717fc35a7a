"""Linear layers of floats with weights of few bits: 4-bit in groups, each group with a scale of its own, or 4
and 8-bit with a scale per output column.

Weights stay packed, eight to a word, the first column the lowest; scales are brought to [row][group].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pteron.dtypes import DType, Storage
from pteron.families.linear.product import ROWS_FEW
from pteron.families.quantized import alone, digits, windows
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.packing import Words, padded_words, scales_by_row, words_per_group
from pteron.families.quantized.tiles import FLOAT_TILES, INT8_TILES, choose
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.rows import folded, row_groups, shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

INT8_GROUP_MAX = 256  # words: Σ |x - zero| · |w| <= 8 · 256 · 255 · 8 stays below 2^22

# What a part of a deep product leaves: its sum alone.
_PARTIAL = {"result": "sum", "added": "0.0"}
# x as int8 by its row's scale and zero point, then back, so that the product sees what int8 arithmetic sees.
_QUANTIZED = {
    "activation": "clamp(round(value / f32(x_scales[m])) + f32(x_zeros[m]), vec4(-128.0), vec4(127.0)) "
    "- f32(x_zeros[m])"
}
_SCALED = {"finish": "sum * f32(x_scales[m])"}


def linear_shape(x: Operand, weights: Operand) -> Shape:
    require(
        x.rank >= 1 and weights.rank == 2,
        "a 4-bit product takes x [..., k] and weights [n, k / 2]",
        x,
        weights,
    )
    columns, row_bytes = weights.shape
    depth = x.shape[-1]
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
    x_scales: Operand | None = None,
    x_zeros: Operand | None = None,
    weight_sums: Operand | None = None,
    residual: Operand | None = None,
) -> Iterator[Dispatch]:
    """The product with 4-bit weights in groups."""
    packed = words_of(weights, scales, group_size, x.shape[-1])
    require(bias is None or bias.numel >= packed.columns, "bias must have one value per column", bias, out)
    yield from product(x, packed, Ends((out,), bias, residual), target, x_scales, x_zeros, weight_sums)


def words_of(weights: Operand, scales: Operand, group_size: AnyInt, depth: int) -> Words:
    """4-bit weights in groups, for x of so many columns."""
    columns, group = weights.shape[0], words_per_group(group_size)
    fits = scales.rank == 2 and scales.shape[0] * 8 * group >= depth and scales.shape[1] >= columns
    require(fits, f"scales must be [k / {8 * group}, n]", scales, weights)
    by_row = scales_by_row(scales, columns, -(-depth // (8 * group)))
    rows, pitch = padded_words(weights)
    return Words(rows, by_row, columns, depth, pitch, group)


def product(
    x: Operand | Scratch,
    packed: Words,
    ends: Ends,
    target: Target,
    x_scales: Operand | None = None,
    x_zeros: Operand | None = None,
    weight_sums: Operand | None = None,
) -> Iterator[Dispatch]:
    """The product by the kernel that suits its shape and the device, in parts where it is deep."""
    columns, depth, group = packed.columns, packed.depth, packed.group
    rows = ends.count // columns if columns else 0
    words = -(-depth // 8)
    if digits.suits(target, rows, packed):
        yield digits.product(x, packed, ends, target, x_scales, x_zeros)
        return
    if not x_scales and (shape := windows.choose(target, x, rows, packed)):
        yield from windows.product(x, packed, ends, shape)
        return
    is_int8 = not target.is_cpu and rows > ROWS_FEW and _has_int8_form(packed, weight_sums)
    name, declarations, part = _kernel(target, rows, columns, words, group, is_int8)
    parts = max(1, -(-words // part))
    declarations |= {"WORDS": words, "PITCH": packed.pitch, "GROUP": group, "PARTS": parts, "PART": part}
    if packed.library != "words":
        declarations["use_words"] = packed.library
    factors: dict[str, Any] = {"x": x, "weights": packed.weights, "scales": packed.scales, "x_zeros": x_zeros}
    if is_int8:
        assert weight_sums is not None
        declarations["SUMS_PITCH"] = weight_sums.shape[1]
        factors["x"], factors["weight_sums"] = Scratch(2 * rows * words, Storage.U32), weight_sums
        yield Dispatch(
            kernel("q4_quantize", WORDS=words),
            x=x,
            x_scales=x_scales,
            x_zeros=x_zeros,
            out=factors["x"],
            rows=rows,
            threads=rows * words,
        )
    else:
        declarations |= {"QUADS": depth // 4} | (_QUANTIZED if x_scales else {})
    if name == "q4_thread":
        declarations |= alone.layout(packed.library, packed.pitch, group)
    sizes: dict[str, Any] = {"rows": rows, "columns": columns}
    finish = (_SCALED if x_scales else {}) | ends.declarations
    operands = ends.operands | {"x_scales": x_scales}
    arguments = factors | sizes | _grid(target, name, declarations, rows, columns)
    if parts == 1:
        yield Dispatch(kernel(name, **declarations, **finish), **arguments, **operands)
        return
    sums = Scratch(parts * ends.count)
    scales = None if is_int8 else x_scales
    yield Dispatch(kernel(name, **declarations, **_PARTIAL), **arguments, x_scales=scales, out=sums)
    merge = kernel("q4_merge", PARTS=parts, **finish)
    yield Dispatch(merge, sums=sums, **operands, **sizes, threads=ends.count)


def _has_int8_form(packed: Words, weight_sums: Operand | None) -> bool:
    """Whether q4_int8 takes it: whole groups of whole steps, not too long for its sums, and their sums."""
    if weight_sums is None or weight_sums.dtype is not DType.I32 or weight_sums.rank != 2:
        return False
    groups, rest = divmod(packed.depth, 8 * packed.group)
    fits = weight_sums.shape[0] >= groups and weight_sums.shape[1] >= packed.columns
    return rest == 0 and packed.group % 4 == 0 and packed.group <= INT8_GROUP_MAX and fits


def _kernel(
    target: Target, rows: int, columns: int, words: int, group: int, is_int8: bool
) -> tuple[str, dict[str, Any], int]:
    """(name, declarations, words of k that one of its invocations takes)."""
    if target.is_cpu:
        return "q4_thread", *alone.cut(rows, words)
    if rows <= ROWS_FEW:
        layout = shared_rows(target, 32, 1)
        return "q4_matvec", {"COLUMNS": matvec_columns(columns), **layout}, max(words, 1)
    tile, parts = choose(INT8_TILES if is_int8 else FLOAT_TILES, target, rows, columns, 8 * words)
    unit = group if is_int8 else tile.step // 8  # words that stay in one part
    units = -(-words // unit)
    return "q4_int8" if is_int8 else "q4_tiled", tile.declarations, -(-units // parts) * unit


def _grid(
    target: Target, name: str, declarations: Mapping[str, Any], rows: int, columns: int
) -> dict[str, Any]:
    parts = declarations["PARTS"]
    if name == "q4_thread":
        return {"threads": parts * alone.invocations(declarations["TILE"], rows, columns)}
    if name == "q4_matvec":
        return {"groups": row_groups(target, declarations, -(-columns // declarations["COLUMNS"]) * rows)}
    height = declarations["TALL"] * declarations["DOWN"]
    width = declarations["WIDE"] * declarations["ACROSS"]
    return {"groups": folded(target, parts * -(-rows // height) * -(-columns // width))}


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
    x_values = input_scales, input_zp, weight_sums
    yield from _linear(x, weights, weight_scales, group_size, bias, out, target, *x_values, residual)
