"""Embeddings with 4-bit weights in groups, each group with a scale of its own.

An index that is negative or beyond the last row gives a row of NaNs, as in `aten.embedding`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.quantized.packing import packed_words, plain_scales, words_per_group
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Indices, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _embedding_shape(
    weight: Operand, weight_scales: Operand, group_size: AnyInt, indices: Operand, is_linear_weight: bool
) -> Shape:
    require(
        weight.rank == 2 and weight.shape[1] % 4 == 0,
        "weight must be [rows, width / 2], width a multiple of 8",
        weight,
    )
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
    yield Indices(indices, 0, size - 1)
    yield Dispatch(
        kernel("embedding_q4", HIGH_FIRST=not is_linear_weight),
        weights=packed_words(weight),
        scales=plain_scales(weight_scales),
        indices=indices,
        out=out,
        count=indices.numel * words,
        size=size,
        words=words,
        words_per_group=group,
        threads=indices.numel * words,
    )
