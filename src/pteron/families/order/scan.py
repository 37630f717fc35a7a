"""Running sums, products and extrema along a dim.

A row that the invocations which share it can walk is one dispatch. A longer one is cut into parts: their
totals come first, then what the parts before each come to, then the parts themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import Storage
from pteron.families.elementwise.unary import element
from pteron.ops import Dispatch, LiveShape, Operand, Scratch, Target, define, require, same_shape
from pteron.ops.operand import compute_type
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.ops.shapes import axis
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def scan(
    x: Operand, dim: int, out: Operand, target: Target, combine: str = "a + b", neutral: str = "Lane()"
) -> Iterator[Dispatch]:
    """out[.., k, ..] = x[.., 0, ..] combined with all up to x[.., k, ..]."""
    at = axis(dim, max(x.rank, 1))
    if x.numel == 0:
        return
    length, stride = (x.shape[at], x.strides[at]) if x.rank else (1, 1)
    rows = x.numel // length
    lane = compute_type(x, out)
    by = {"Lane": lane, "combine": combine, "neutral": neutral}
    layout = row_layout(target, rows, length)
    parts, span = row_parts(layout, length)
    sizes: dict[str, Any] = {"rows": rows, "parts": parts, "length": length, "span": span, "stride": stride}
    carried: Scratch | None = None
    if parts > 1:
        totals, carried = (Scratch(rows * parts, Storage(lane)) for _ in range(2))
        yield Dispatch(kernel("part_totals", **by), x=x, totals=totals, **sizes, threads=rows * parts)
        yield Dispatch(
            kernel("scan_totals", **by), totals=totals, carried=carried, rows=rows, parts=parts, threads=rows
        )
    yield Dispatch(
        kernel("scan", **by, stored=element("value", lane, out).replace("T(", "Lane(")),
        **layout,
        x=x,
        carried=carried,
        out=out,
        **sizes,
        groups=row_groups(target, layout, rows * parts),
    )


def _cumsum(x: Operand, dim: int, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    return scan(x, dim, out, target)


def _cumprod(x: Operand, dim: int, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    return scan(x, dim, out, target, "a * b", "Lane(1)")


define("aten.cumsum.default", "self dim:int dtype:ignored -> out", shape=same_shape, compute=_cumsum)
define("aten.cumprod.default", "self dim:int dtype:ignored -> out", shape=same_shape, compute=_cumprod)


def _logcumsumexp(x: Operand, dim: int, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    require(x.dtype.is_float, "the operator takes floats", x)
    return scan(x, dim, out, target, "log_add(a, b)", "minus_infinity()")


define("aten.logcumsumexp.default", "self dim:int -> out", shape=same_shape, compute=_logcumsumexp)


def running_extreme(name: str, better: str, start: dict[str, str]) -> None:
    """An operator that gives the best element so far, and the last of its indices."""

    def shapes(x: Operand, dim: int) -> tuple[LiveShape, LiveShape]:
        return x.shape, x.shape

    def dispatches(
        x: Operand, dim: int, values: Operand, indices: Operand, *, target: Target
    ) -> Iterator[Dispatch]:
        compute = compute_type(x)
        yield from scan(x, dim, values, target, better, start[compute])
        at = axis(dim, max(x.rank, 1))
        reached = indices.scratch()
        yield Dispatch(
            kernel("last_reached", T=compute),
            x=x,
            reached=values,
            out=reached,
            count=x.numel,
            length=x.shape[at] if x.rank else 1,
            stride=x.strides[at] if x.rank else 1,
            threads=x.numel,
        )
        yield from scan(reached, dim, indices, target, "max(a, b)")

    define(name, "self dim:int -> values indices", shape=shapes, compute=dispatches)


running_extreme(
    "aten.cummax.default", "larger_of(a, b)", {"f32": "minus_infinity()", "i32": "Lane(-2147483647 - 1)"}
)
running_extreme(
    "aten.cummin.default", "smaller_of(a, b)", {"f32": "-minus_infinity()", "i32": "Lane(2147483647)"}
)
