"""Softmax and its logarithm over one dim."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.reduce.fold import LARGEST, SUM, Rows, fold, strided_rows
from pteron.ops import Dispatch, Operand, Scratch, Target, define, same_shape
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.ops.shapes import axis
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _in_parts(x: Operand, out: Operand, rows: Rows, target: Target, result: str) -> Iterator[Dispatch]:
    """Rows too long for their lanes: fold them twice, then write every element on its own."""
    most, total = Scratch(rows.count), Scratch(rows.count)
    yield from fold(rows, most, target, LARGEST)
    yield from fold(rows, total, target, SUM, take="exp(value - of_row[row])", of_row=most)
    yield Dispatch(
        kernel("softmax_write", result=result),
        x=x,
        most=most,
        total=total,
        out=out,
        count=x.numel,
        length=rows.length,
        stride=rows.reduced[1][0],
        threads=x.numel,
    )


def softmax(name: str, result: str) -> None:
    """An operator of the softmax family; `result` is one element from `shifted` and `total`."""

    def dispatches(
        x: Operand, dim: int, half_to_float: bool, out: Operand, *, target: Target
    ) -> Iterator[Dispatch]:
        at = axis(dim, max(x.rank, 1))
        length, stride = (x.shape[at], x.strides[at]) if x.rank else (1, 1)
        rows = x.numel // length if length else 0
        layout = row_layout(target, rows, length)
        if row_parts(layout, length)[0] > 1:
            yield from _in_parts(x, out, strided_rows(x, rows, length, stride), target, result)
            return
        yield Dispatch(
            kernel("softmax", result=result),
            **layout,
            x=x,
            out=out,
            rows=rows,
            length=length,
            stride=stride,
            groups=row_groups(target, layout, rows),
        )

    define(name, "self dim:int half_to_float:bool -> out", shape=same_shape, compute=dispatches)


softmax("aten._softmax.default", "exp(shifted) / total")
softmax("aten._log_softmax.default", "shifted - log_of(total)")
