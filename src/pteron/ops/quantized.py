"""Linear layers and embeddings with 4-bit weights in groups, each group with a scale of its own.

Weights stay packed as they lie in the file: eight to a word, the lowest nibble the first column. Scales are
brought to [row][group].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pteron.graph import Constant, Shape
from pteron.ops.dispatch import Dispatch
from pteron.ops.linear import ROWS_FEW
from pteron.ops.live import AnyInt
from pteron.ops.operand import HostArray, Operand, Weight
from pteron.ops.registry import Target, op, require
from pteron.ops.rows import row_groups, row_layout, shared_rows
from pteron.wgsl import Kernel

# x as int8 by its row's scale and zero point, then back, so that the product sees what int8 arithmetic sees.
_QUANTIZED_X = {
    "activation": "clamp(round(value / f32(x_scales[m])) + f32(x_zeros[m]), vec4(-128.0), vec4(127.0)) "
    "- f32(x_zeros[m])",
    "finish": "sum * f32(x_scales[m])",
}


def _words(weights: Operand) -> Weight:
    """A matrix of packed nibbles as 32-bit words."""
    return weights.packed("words", lambda constant: constant.bytes())


def _scales_by_row(scales: Operand, rows: int) -> Weight:
    """Scales [group][row, padded] as [row][group]."""

    def transpose(constant: Constant) -> HostArray:
        return np.ascontiguousarray(constant.numpy()[:, :rows].T.astype(np.float32))

    return scales.packed(f"by row {rows}", transpose)


def _as_f32(scales: Operand) -> Weight:
    return scales.packed("plain f32", lambda constant: constant.numpy().astype(np.float32))


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


def _linear(
    x: Operand,
    weights: Operand,
    scales: Operand,
    group_size: int,
    bias: Operand | None,
    out: Operand,
    target: Target,
    x_scales: Operand | None = None,
    x_zeros: Operand | None = None,
) -> Dispatch:
    columns, depth = weights.shape[0], x.shape[-1]
    rows = out.numel // columns if columns else 0
    require(group_size > 0 and group_size % 8 == 0, f"group_size {group_size} must be a multiple of 8")
    fits = scales.rank == 2 and scales.shape[0] * group_size >= depth and scales.shape[1] >= columns
    require(fits, f"scales must be [k / {group_size}, n]", scales, weights)
    declarations: dict[str, Any] = {} if bias else {"added": "0.0"}
    if x_scales is not None:
        declarations |= _QUANTIZED_X
    arguments: dict[str, Any] = {
        "x": x,
        "weights": _words(weights),
        "scales": _scales_by_row(scales, columns),
        "bias": bias,
        "x_scales": x_scales,
        "x_zeros": x_zeros,
        "out": out,
        "rows": rows,
        "columns": columns,
    }
    declarations |= {
        "QUADS": f"{depth // 4}u",
        "WORDS": f"{weights.shape[1] // 4}u",
        "GROUP": f"{group_size // 8}u",
    }
    if target.is_cpu:
        tile = min(4, max(rows, 1))
        kernel = Kernel("q4_thread", TILE=f"{tile}u", **declarations)
        return Dispatch(kernel, **arguments, threads=-(-rows // tile) * columns)
    if rows <= ROWS_FEW:
        per_bundle = matvec_columns(columns)
        layout = shared_rows(target, 32, 1)
        kernel = Kernel("q4_matvec", COLUMNS=f"{per_bundle}u", **layout, **declarations)
        return Dispatch(
            kernel, **arguments, groups=row_groups(target, layout, -(-columns // per_bundle) * rows)
        )
    tall = 8 if rows > 256 else 4
    groups = -(-columns // 64), -(-rows // (16 * tall)), 1
    return Dispatch(Kernel("q4_tiled", TALL=f"{tall}u", **declarations), **arguments, groups=groups)


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
    group_size: int,
    bias: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    yield _linear(x, weights, weight_scales, group_size, bias, out, target)


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
    group_size: int,
    bias: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    fits = input_scales.numel == rows == input_zp.numel
    require(fits, "x needs one scale and one zero point per row", x, input_scales, input_zp)
    yield _linear(x, weights, weight_scales, group_size, bias, out, target, input_scales, input_zp)


def _embedding_shape(
    weight: Operand, scales: Operand, group_size: int, indices: Operand, linear: bool
) -> Shape:
    require(weight.rank == 2 and weight.shape[1] % 4 == 0, "weight must be [rows, width / 2]", weight)
    return (*indices.shape, 2 * weight.shape[1])


@op(
    "et_vk.embedding_q4gsw.default",
    "weight weight_scales group_size:int indices is_linear_weight:bool -> out",
    shape=_embedding_shape,
)
def embedding_q4gsw(
    weight: Operand,
    weight_scales: Operand,
    group_size: int,
    indices: Operand,
    is_linear_weight: bool,
    out: Operand,
) -> Iterator[Dispatch]:
    require(group_size > 0 and group_size % 8 == 0, f"group_size {group_size} must be a multiple of 8")
    size, row_bytes = weight.shape
    fits = weight_scales.shape == (size, -(-2 * row_bytes // group_size))
    require(fits, f"scales must be [rows, width / {group_size}]", weight_scales, weight)
    words = row_bytes // 4
    yield Dispatch(
        Kernel("q4_embedding", HIGH_FIRST=str(not is_linear_weight).lower()),
        weights=_words(weight),
        scales=_as_f32(weight_scales),
        indices=indices,
        out=out,
        count=indices.numel * words,
        size=size,
        words=words,
        words_per_group=group_size // 8,
        threads=indices.numel * words,
    )


def _qparams_shapes(
    x: Operand, mapping: str, block_size: Sequence[AnyInt], *_: object
) -> tuple[Shape, Shape]:
    keepdim = bool(_[-1])
    whole_rows = all(size == 1 for size in block_size[:-1]) and block_size[-1] == x.shape[-1]
    require(whole_rows, f"blocks must be whole rows of x, not {list(block_size)}", x)
    row = (*x.shape[:-1], 1) if keepdim else x.shape[:-1]
    return row, row


@op(
    "torchao.choose_qparams_affine.default",
    "input mapping_type:str block_size:ints target_dtype:any quant_min:number? quant_max:number? eps:number? "
    "scale_dtype:any zero_point_dtype:any keepdim:bool -> scale zero_point",
    shape=_qparams_shapes,
)
def choose_qparams_affine(
    x: Operand,
    mapping_type: str,
    block_size: Sequence[AnyInt],
    target_dtype: object,
    quant_min: float | None,
    quant_max: float | None,
    eps: float | None,
    scale_dtype: object,
    zero_point_dtype: object,
    keepdim: bool,
    scale: Operand,
    zero_point: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    require(mapping_type == "ASYMMETRIC", f"mapping_type {mapping_type!r} is not ASYMMETRIC")
    length = x.shape[-1]
    layout = row_layout(target, scale.numel, length)
    yield Dispatch(
        Kernel("choose_qparams", **layout),
        x=x,
        scale=scale,
        zero_point=zero_point,
        rows=scale.numel,
        length=length,
        low=-128.0 if quant_min is None else quant_min,
        high=127.0 if quant_max is None else quant_max,
        eps=float(np.finfo(np.float32).eps) if eps is None else eps,
        groups=row_groups(target, layout, scale.numel),
    )
