"""Products of tokens with the matrices of their experts. Only the chosen matrices are read.

    out[token, j] = x[token] or x[token, j], times the matrix experts[token, j], or j without experts

All matrices are one weight, one after the other: [count · rows, columns], in floats, in 8 bits with a scale
per row, or in 4 or 8 bits with scales of groups, in the layouts of a linear layer with as many rows. The
number of an expert beyond the last counts as the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.dtypes import DType
from pteron.families.linear.product import Product
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import bytes_of, words_of
from pteron.families.quantized.linear_q4 import product, product_padded, product_per_channel
from pteron.families.quantized.packing import Choice, byte_rows
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, op, require


def product_shape(
    x: Operand, experts: Operand | None, weight: Operand, count: AnyInt, columns: int
) -> LiveShape:
    matrices = int(count)
    chosen = experts.shape if experts else x.shape[:2]
    fits = len(chosen) == 2 and x.shape[:-1] in (chosen, chosen[:1])
    require(fits, "experts must be [tokens, k], x [tokens, columns] or [tokens, k, columns]", x, experts)
    is_whole = experts is None or experts.dtype in (DType.I32, DType.I64)
    require(is_whole, "the numbers of experts must be integers", experts)
    require(experts is not None or chosen[1] == matrices, f"x must be [tokens, {matrices}, columns]", x)
    fits = weight.rank == 2 and matrices > 0 and weight.shape[0] % matrices == 0
    fits = fits and 0 < x.shape[-1] <= columns
    require(fits, f"weight must be {matrices} matrices with x's columns, one after the other", weight, x)
    return (*chosen, weight.shape[0] // matrices)


def choice_of(x: Operand, experts: Operand | None, count: AnyInt, out: Operand) -> Choice:
    return Choice(experts, int(count), int(out.shape[1]) if x.rank == 2 else 1)


@op(
    "pteron.experts_linear.default",
    "x experts? weight count:int -> out",
    shape=lambda x, experts, weight, count: product_shape(x, experts, weight, count, weight.shape[-1]),
)
def experts_linear(
    x: Operand, experts: Operand | None, weight: Operand, count: AnyInt, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """Matrices of floats."""
    choice, depth = choice_of(x, experts, count, out), x.shape[-1]
    require(weight.shape[1] == depth, "weight must have x's columns", weight, x)
    yield from Product(
        x,
        weight,
        out,
        rows=1,
        columns=out.shape[-1],
        depth=depth,
        b_row=1,
        b_column=depth,
        batch=out.shape[0] * out.shape[1],
        b_layout={
            "experts": experts,
            "MATRICES": choice.matrices,
            "IN_TURN": experts is None,
            "SHARE": choice.share,
        },
    ).dispatches(target)


@op(
    "pteron.experts_int8.default",
    "x experts? weight scales count:int -> out",
    shape=lambda x, experts, weight, scales, count: product_shape(
        x, experts, weight, count, weight.shape[-1]
    ),
)
def experts_int8(
    x: Operand,
    experts: Operand | None,
    weight: Operand,
    scales: Operand,
    count: AnyInt,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Matrices of int8, with a scale per row."""
    require(weight.dtype is DType.I8, "8-bit weights must be i8", weight)
    require(weight.shape[1] == x.shape[-1], "weight must have x's columns", weight, x)
    choice = choice_of(x, experts, count, out)
    yield from product_per_channel(x, weight, byte_rows(weight), scales, 8, out, target, choice)


@op(
    "pteron.experts_q8gsw.default",
    "x experts? weight scales minima? group_size:int count:int -> out",
    shape=lambda x, experts, weight, *rest: product_shape(x, experts, weight, rest[-1], weight.shape[-1]),
)
def experts_q8gsw(
    x: Operand,
    experts: Operand | None,
    weight: Operand,
    scales: Operand,
    minima: Operand | None,
    group_size: AnyInt,
    count: AnyInt,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Matrices of int8, with a scale and perhaps a minimum per group of columns."""
    packed = bytes_of(x, weight, scales, minima, group_size)
    chosen = replace(packed, columns=int(out.shape[-1]), choice=choice_of(x, experts, count, out))
    yield from product_padded(x, chosen, Epilogue((out,)), target)


@op(
    "pteron.experts_q4gsw.default",
    "x experts? weight scales group_size:int count:int -> out",
    shape=lambda x, experts, weight, *rest: product_shape(x, experts, weight, rest[-1], 2 * weight.shape[-1]),
)
def experts_q4gsw(
    x: Operand,
    experts: Operand | None,
    weight: Operand,
    scales: Operand,
    group_size: AnyInt,
    count: AnyInt,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Matrices of 4 bits, with a scale per group of columns."""
    fits = x.shape[-1] % 4 == 0 == weight.shape[1] % 4
    require(fits, "rows of 4-bit weights must cover x's columns, in whole words", x, weight)
    packed = words_of(weight, scales, group_size, x.shape[-1])
    chosen = replace(packed, columns=int(out.shape[-1]), choice=choice_of(x, experts, count, out))
    yield from product(x, chosen, Epilogue((out,)), target)
