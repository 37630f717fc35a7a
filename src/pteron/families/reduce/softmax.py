"""Softmax and its logarithm over one dim."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.ops import Dispatch, Operand, Target, define, same_shape
from pteron.ops.rows import row_groups, row_layout
from pteron.ops.shapes import axis
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def softmax(name: str, result: str) -> None:
    """An operator of the softmax family; `result` is one element from `shifted` and `total`."""

    def dispatches(
        x: Operand, dim: int, half_to_float: bool, out: Operand, *, target: Target
    ) -> Iterator[Dispatch]:
        at = axis(dim, max(x.rank, 1))
        length, stride = (x.shape[at], x.strides[at]) if x.rank else (1, 1)
        rows = x.numel // length if length else 0
        layout = row_layout(target, rows, length)
        yield Dispatch(
            kernel("softmax", result=result, **layout),
            x=x,
            out=out,
            rows=rows,
            length=length,
            stride=stride,
            groups=row_groups(target, layout, rows),
        )

    define(name, "self dim:int half_to_float:bool -> out", shape=same_shape, compute=dispatches)


softmax("aten._softmax.default", "exp(shifted) / total")
softmax("aten._log_softmax.default", "shifted - log(total)")
