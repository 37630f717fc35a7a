"""Products of groups of rows, each with a matrix of its own, as in a mixture of experts."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.create.fill import fill
from pteron.families.linear.product import Product
from pteron.families.order.search import searchsorted
from pteron.ops import Dispatch, LiveShape, Operand, Target, op, require


def _shape(a: Operand, b: Operand, offs: Operand | None, bias: Operand | None = None) -> LiveShape:
    require(
        a.rank == 2 and b.rank == 3 and offs is not None,
        "grouped_mm takes [rows, depth], a matrix per group and the end of each group",
        a,
        b,
        offs,
    )
    require(bias is None, "grouped_mm takes no bias", a, bias)
    require(a.shape[1] == b.shape[1], "the rows' length must equal the matrices' rows", a, b)
    require(offs is None or offs.shape == b.shape[:1], "each matrix takes the end of its group", b, offs)
    return a.shape[0], b.shape[2]


@op("aten._grouped_mm.default", "self mat2 offs? bias? out_dtype:ignored -> out", shape=_shape)
def grouped_mm(
    a: Operand, b: Operand, offs: Operand | None, bias: None, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """Row r is in the group of the first end that is greater than r. Rows from the last end on have no
    defined result, as in PyTorch."""
    assert offs is not None
    (rows, depth), columns, count = a.shape, b.shape[2], b.shape[0]
    require(count > 0, "grouped_mm takes one matrix or more", b)
    numbers, groups = offs.scratch((rows,)), offs.scratch((rows,))
    yield fill(numbers, 0, 1)
    yield from searchsorted(offs, numbers, True, None, None, groups)
    product = Product(
        a,
        b,
        out,
        rows=1,
        columns=columns,
        depth=depth,
        b_row=columns,
        b_column=1,
        batch=rows,
        b_layout={"experts": groups, "MATRICES": count},
    )
    yield from product.dispatches(target)


@op("transformers.grouped_mm_fallback.default", "input weight offs -> out", shape=_shape)
def grouped_mm_of_transformers(
    a: Operand, b: Operand, offs: Operand, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """What the library transformers exports, because PyTorch exports its own operator only in bfloat16."""
    yield from grouped_mm(a, b, offs, None, out, target=target)
