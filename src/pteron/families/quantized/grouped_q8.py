"""Linear layers and embeddings with 8-bit weights in groups, each group with a scale and perhaps a minimum:

    w[n, k] = integers[n, k] · scales[k / group, n] + minima[k / group, n]

The block types of GGUF files have this form. Scales and minima are f32 [groups, n or more]. A table that is
also the matrix of a linear layer is one weight on the device.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import DType
from pteron.families.quantized.embedding_q4 import pick_rows
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.linear_q4 import check_bias, padded_depth, product_padded
from pteron.families.quantized.packing import PackedWeights, byte_rows, scales_by_row, words_per_group
from pteron.ops import AnyInt, Dispatch, Indices, LiveShape, Operand, Target, Weight, op, require


def bytes_of(
    x: Operand, weights: Operand, scales: Operand, minima: Operand | None, group_size: AnyInt
) -> PackedWeights:
    """8-bit weights in groups, for x."""
    columns, depth = map(int, weights.shape)
    require(depth == x.shape[-1], "weights must have x's columns", weights, x)
    by_row, minima_by_row = _by_row(weights, scales, minima, group_size)
    words, group = -(-depth // 8), words_per_group(group_size)
    packed = byte_rows(weights)
    sizes = columns, padded_depth(x), words, group
    return PackedWeights(packed, by_row, *sizes, bits=8, minima=minima_by_row)


def _by_row(
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
    scales, minima = _by_row(weight, weight_scales, weight_minima, group_size)
    tables = {"table": byte_rows(weight), "table_scales": scales, "table_minima": minima}
    table = {**tables, "TABLE_IN_BYTES": True, "TABLE_GROUP": words_per_group(group_size)}
    size, width = weight.shape
    yield from pick_rows(indices, size, width // 8, table, out)
