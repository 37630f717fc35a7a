"""Linear layers of floats with weights of few bits: 4-bit in groups, each group with a scale of its own, or 4
and 8-bit with a scale per output column.

Weights stay packed, eight to a word, the first column the lowest; scales are brought to [row][group].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pteron.families.linear.product import ROWS_FEW
from pteron.families.quantized import alone
from pteron.families.quantized.packing import packed_words, scales_by_row, words_per_group
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, Weight, op, require
from pteron.ops.rows import row_groups, shared_rows, split
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

TILED_WORDS_MAX = 4096  # of one part by q4_tiled, where the adapter ends long loops

# What a part of a deep product leaves: its sum alone.
_PARTIAL = {"result": "sum", "added": "0.0"}
# x as int8 by its row's scale and zero point, then back, so that the product sees what int8 arithmetic sees.
_QUANTIZED_X = {
    "activation": "clamp(round(value / f32(x_scales[m])) + f32(x_zeros[m]), vec4(-128.0), vec4(127.0)) "
    "- f32(x_zeros[m])",
    "finish": "sum * f32(x_scales[m])",
}


def _linear_shape(x: Operand, weights: Operand) -> Shape:
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


@dataclass(frozen=True, slots=True)
class Words:
    """A matrix of weights as words of eight, and their scales."""

    weights: Weight
    scales: Weight
    columns: int
    depth: int  # of x, a multiple of four
    pitch: int  # words from one row to the next
    group: int  # words that share a scale
    library: str = "words"


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
) -> Iterator[Dispatch]:
    """The product with 4-bit weights in groups."""
    columns, depth = weights.shape[0], x.shape[-1]
    words, group = -(-depth // 8), words_per_group(group_size)
    fits = scales.rank == 2 and scales.shape[0] * 8 * group >= depth and scales.shape[1] >= columns
    require(fits, f"scales must be [k / {8 * group}, n]", scales, weights)
    by_row = scales_by_row(scales, columns, -(-words // group))
    packed = Words(packed_words(weights), by_row, columns, depth, weights.shape[1] // 4, group)
    yield from product(x, packed, bias, out, target, x_scales, x_zeros)


def product(
    x: Operand | Scratch,
    packed: Words,
    bias: Operand | None,
    out: Operand,
    target: Target,
    x_scales: Operand | None = None,
    x_zeros: Operand | None = None,
) -> Iterator[Dispatch]:
    """The product by the kernel that suits its shape and the device, in parts where it is deep."""
    columns, depth, group = packed.columns, packed.depth, packed.group
    rows = out.numel // columns if columns else 0
    words = -(-depth // 8)
    require(bias is None or bias.numel >= columns, "bias must have one value per column", bias, out)
    name, declarations, part = _kernel(target, rows, columns, words, group)
    parts = max(1, -(-words // part))
    declarations |= {
        "QUADS": depth // 4,
        "WORDS": words,
        "PITCH": packed.pitch,
        "GROUP": group,
        "PARTS": parts,
        "PART": part,
    }
    if packed.library != "words":
        declarations["use_words"] = packed.library
    if name == "q4_thread":
        declarations |= alone.layout(packed.library, packed.pitch, group)
    sizes: dict[str, Any] = {"rows": rows, "columns": columns}
    factors: dict[str, Any] = {"x": x, "weights": packed.weights, "scales": packed.scales}
    x_parameters: dict[str, Any] = {"x_scales": x_scales, "x_zeros": x_zeros}
    quantized = {} if x_scales is None else _QUANTIZED_X
    absent = {} if bias else {"added": "0.0"}
    arguments = factors | x_parameters | sizes | _grid(target, name, declarations, rows, columns)
    if parts == 1:
        yield Dispatch(kernel(name, **declarations, **quantized, **absent), **arguments, bias=bias, out=out)
        return
    sums = Scratch(parts * out.numel)
    yield Dispatch(kernel(name, **declarations, **quantized, **_PARTIAL), **arguments, out=sums)
    conversion = {"finish": _QUANTIZED_X["finish"]} if x_scales else {}
    yield Dispatch(
        kernel("q4_merge", PARTS=parts, **conversion, **absent),
        sums=sums,
        x_scales=x_scales,
        bias=bias,
        out=out,
        **sizes,
        threads=out.numel,
    )


def _kernel(
    target: Target, rows: int, columns: int, words: int, group: int
) -> tuple[str, dict[str, Any], int]:
    """(name, declarations, words of k that one of its invocations takes)."""
    if target.is_cpu:
        return "q4_thread", *alone.cut(rows, words)
    if rows <= ROWS_FEW:
        layout = shared_rows(target, 32, 1)
        return "q4_matvec", {"COLUMNS": matvec_columns(columns), **layout}, max(words, 1)
    _, steps = split(-(-words // 4), TILED_WORDS_MAX // 4 if target.loop_max else max(words, 1))
    return "q4_tiled", {"TALL": 8 if rows > 256 else 4}, 4 * steps


def _grid(
    target: Target, name: str, declarations: Mapping[str, Any], rows: int, columns: int
) -> dict[str, Any]:
    parts = declarations["PARTS"]
    if name == "q4_thread":
        return {"threads": parts * alone.invocations(declarations["TILE"], rows, columns)}
    if name == "q4_matvec":
        return {"groups": row_groups(target, declarations, -(-columns // declarations["COLUMNS"]) * rows)}
    return {"groups": (-(-columns // 64), -(-rows // (16 * declarations["TALL"])), parts)}


def matvec_columns(columns: int) -> int:
    """Columns per bundle: more reuse x better, fewer fill the device sooner. Measured on an H200."""
    return 4 if columns >= 8192 else 2 if columns >= 1024 else 1


@op(
    "et_vk.linear_q4gsw.default",
    "self weights weight_scales group_size:int bias? -> out",
    shape=lambda x, weights, *_: _linear_shape(x, weights),
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
    shape=lambda x, input_scales, input_zp, weights, *_: _linear_shape(x, weights),
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
    *,
    target: Target,
) -> Iterator[Dispatch]:
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    fits = input_scales.numel == rows == input_zp.numel
    require(fits, "x needs one scale and one zero point per row", x, input_scales, input_zp)
    yield from _linear(x, weights, weight_scales, group_size, bias, out, target, input_scales, input_zp)
