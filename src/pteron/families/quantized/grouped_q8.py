"""Linear layers and embeddings with 8-bit weights in groups, each group with a scale and perhaps a minimum:

    w[n, k] = integers[n, k] · scales[k / group, n] + minima[k / group, n]

The block types of GGUF files have this form. Scales and minima are f32 [groups, n or more]. A table that is
also the matrix of a linear layer is one weight on the device.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.quantized.embedding_q4 import pick_rows
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import bytes_of, bytes_shape, check_bias, factors_by_row
from pteron.families.quantized.linear_q4 import product_padded
from pteron.families.quantized.packing import byte_rows, words_per_group
from pteron.ops import AnyInt, Dispatch, Indices, LiveShape, Operand, Target, op, require


@op(
    "pteron.linear_q8gsw.default",
    "self weights weight_scales weight_minima? group_size:int bias? -> out",
    shape=bytes_shape,
)
def linear_q8gsw(
    x: Operand,
    weights: Operand,
    weight_scales: Operand,
    weight_minima: Operand | None,
    group_size: AnyInt,
    bias: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    packed = bytes_of(x, weights, weight_scales, weight_minima, group_size)
    if bias is not None:
        check_bias(bias, weights)
    yield from product_padded(x, packed, Epilogue((out,), bias), target)


def _embedding_shape(weight: Operand, *arguments: object) -> LiveShape:
    indices = arguments[-1]
    assert isinstance(indices, Operand)
    fits = weight.rank == 2 and weight.shape[1] % 8 == 0
    require(fits, "weight must be [rows, width], width a multiple of 8", weight)
    return (*indices.shape, weight.shape[1])


@op(
    "pteron.embedding_q8gsw.default",
    "weight weight_scales weight_minima? group_size:int indices -> out",
    shape=_embedding_shape,
)
def embedding_q8gsw(
    weight: Operand,
    weight_scales: Operand,
    weight_minima: Operand | None,
    group_size: AnyInt,
    indices: Operand,
    out: Operand,
) -> Iterator[Dispatch | Indices]:
    scales, minima = factors_by_row(weight, weight_scales, weight_minima, group_size)
    tables = {"table": byte_rows(weight), "table_scales": scales, "table_minima": minima}
    table = {**tables, "TABLE_IN_BYTES": True, "TABLE_GROUP": words_per_group(group_size)}
    size, width = weight.shape
    yield from pick_rows(indices, size, width // 8, table, out)
