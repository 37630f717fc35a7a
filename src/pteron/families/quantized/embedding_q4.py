"""Embeddings with weights of 4 or 8 bits in groups, each group with a scale of its own.

An index that is negative or beyond the last row gives a row of NaNs, as in `aten.embedding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pteron.families.quantized.packing import packed_words, plain_scales, words_per_group
from pteron.ops import AnyInt, Dispatch, Indices, LiveShape, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _embedding_shape(
    weight: Operand, weight_scales: Operand, group_size: AnyInt, indices: Operand, is_linear_weight: bool
) -> LiveShape:
    fits = weight.rank == 2 and weight.shape[1] % 4 == 0
    require(fits, "weight must be [rows, width / 2], width a multiple of 8", weight)
    return (*indices.shape, 2 * weight.shape[1])


@op(
    "et_vk.embedding_q4gsw.default",
    "weight weight_scales group_size:int indices is_linear_weight:bool -> out",
    shape=_embedding_shape,
)
def embedding_q4gsw(
    weight: Operand,
    weight_scales: Operand,
    group_size: AnyInt,
    indices: Operand,
    is_linear_weight: bool,
    out: Operand,
) -> Iterator[Dispatch | Indices]:
    group = words_per_group(group_size)
    size, words = weight.shape[0], weight.shape[1] // 4
    fits = weight_scales.shape == (size, -(-words // group))
    require(fits, f"scales must be [rows, width / {8 * group}]", weight_scales, weight)
    tables = {"table": packed_words(weight), "table_scales": plain_scales(weight_scales)}
    table = {**tables, "HIGH_FIRST": not is_linear_weight, "TABLE_GROUP": group}
    yield from pick_rows(indices, size, words, table, out)


def pick_rows(
    indices: Operand,
    size: AnyInt,
    words: AnyInt,
    table: Mapping[str, Any],
    out: Operand,
) -> Iterator[Dispatch | Indices]:
    """The launch for `size` rows of `words` words; `table` are arguments of embedding_q4.wgsl."""
    yield Indices(indices, 0, size - 1)
    yield Dispatch(
        kernel("embedding_q4"),
        **table,
        TABLE_SIZE=size,
        TABLE_WORDS=words,
        indices=indices,
        out=out,
        count=indices.numel * words,
        threads=indices.numel * words,
    )


def _embedding_4bit_shape(weight: Operand, *arguments: Any) -> LiveShape:
    require(weight.rank == 2, "weight must be [rows, width / 2]", weight)
    return (*arguments[-1].shape, 2 * weight.shape[1])


@op(
    "quantized_decomposed.embedding_4bit.dtype",
    "weight weight_scales weight_zero_points? weight_quant_min:int weight_quant_max:int indices "
    "dtype:ignored -> out",
    shape=_embedding_4bit_shape,
)
def embedding_4bit(
    weight: Operand, weight_scales: Operand, weight_zero_points: Operand | None, *arguments: Any
) -> Iterator[Dispatch | Indices]:
    quant_min, quant_max, indices, out = arguments
    bounds = int(quant_min), int(quant_max)
    require(bounds == (-8, 7), f"4-bit weights are between -8 and 7, not {bounds[0]} and {bounds[1]}")
    size, pitch = weight.shape
    groups = weight_scales.numel // size if size else 0
    fits = weight_scales.numel == size * groups and groups > 0 and 2 * pitch % groups == 0
    require(fits, "scales must be [rows, groups], groups a divisor of the width", weight_scales, weight)
    same = weight_zero_points is None or weight_zero_points.numel == weight_scales.numel
    require(same, "scales and zero points must be as many", weight_scales, weight_zero_points)
    yield Indices(indices, 0, size - 1)
    yield Dispatch(
        kernel("embedding_4bit"),
        weights=packed_words(weight),
        scales=weight_scales,
        zero_points=weight_zero_points,
        indices=indices,
        out=out,
        count=indices.numel * pitch,
        size=size,
        pitch=pitch,
        groups_per_row=groups,
        group=2 * pitch // groups,
        threads=indices.numel * pitch,
    )
