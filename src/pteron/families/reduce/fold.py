"""Folding rows: each comes down to one value, by as many dispatches as its length takes.

A row that is short enough for the invocations that share it is folded at once. A longer one is folded in
parts (ops/row_layout.py) to scratch memory, and its parts are folded in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pteron.dtypes import Storage
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, numel
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

RANK_MAX = 4  # separate dims that a kernel walks

# How values are merged.
SUM: Mapping[str, bool] = {}
LARGEST, PRODUCT = {"IS_LARGEST": True}, {"IS_PRODUCT": True}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in a tensor: sizes and strides of the dims that number them, and of the dims they consist of."""

    x: Operand | Scratch
    kept: tuple[LiveShape, LiveShape]
    reduced: tuple[LiveShape, LiveShape]

    @property
    def count(self) -> AnyInt:
        return numel(self.kept[0])

    @property
    def length(self) -> AnyInt:
        return numel(self.reduced[0])


def strided_rows(x: Operand | Scratch, count: AnyInt, length: AnyInt, stride: AnyInt = 1) -> Rows:
    """Rows whose elements are `stride` apart, `stride` rows interleaved."""
    kept = (count // stride, stride), (stride * length, 1)
    return Rows(x, kept, ((length,), (stride,)))


def fold(
    rows: Rows,
    out: Operand | Scratch,
    target: Target,
    by: Mapping[str, bool],
    *,
    lane: str = "f32",
    take: str = "value",
    of_row: Scratch | None = None,
    rest_of_row: Scratch | None = None,
    finish: str = "total",
) -> Iterator[Dispatch]:
    """out[row] = finish(the merge of take(value) over the row), by SUM, LARGEST or PRODUCT, in type `lane`.

    `take` may read `of_row[row]` and `rest_of_row[row]`; `finish` may read `params.count`, the row's length.
    """
    count = rows.length
    while True:
        layout = row_layout(target, rows.count, rows.length)
        parts, span = row_parts(layout, rows.length)
        stage = out if parts == 1 else Scratch(rows.count * parts, Storage(lane))
        yield Dispatch(
            kernel("reduce", Lane=lane, take=take, finish=finish if parts == 1 else "total"),
            **layout,
            **by,
            IS_STRIDED=len(rows.reduced[0]) <= 1,
            x=rows.x,
            of_row=of_row,
            rest_of_row=rest_of_row,
            out=stage,
            rows=rows.count,
            parts=parts,
            length=rows.length,
            span=span,
            count=count,
            kept_shape=_filled(rows.kept[0], 1),
            kept_strides=_filled(rows.kept[1], 0),
            reduced_shape=_filled(rows.reduced[0], 1),
            reduced_strides=_filled(rows.reduced[1], 0),
            groups=row_groups(target, layout, rows.count * parts),
        )
        if parts == 1:
            return
        rows, take = strided_rows(stage, rows.count, parts), "value"
        of_row = rest_of_row = None


def _filled(sizes: LiveShape, filler: int) -> LiveShape:
    """Up to four numbers, filled up to four from the left."""
    return (filler,) * (RANK_MAX - len(sizes)) + sizes
