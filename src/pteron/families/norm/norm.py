"""Normalisation of rows: RMS norm and layer norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, Target, op, require, same_shape
from pteron.ops.rows import row_groups, row_layout
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


@op("et_vk.rms_norm.default", "x weight eps:float -> out", shape=same_shape)
def rms_norm(x: Operand, weight: Operand, eps: float, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    require(
        x.rank > 0 and weight.shape == x.shape[-1:], "weight must have the size of x's last dim", x, weight
    )
    length = x.shape[-1]
    rows = x.numel // length if length else 0
    layout = row_layout(target, rows, length)
    yield Dispatch(
        kernel("rms_norm", **layout),
        x=x,
        weight=weight,
        out=out,
        rows=rows,
        length=length,
        eps=eps,
        groups=row_groups(target, layout, rows),
    )


def _layer_norm_shapes(
    x: Operand, normalized_shape: Sequence[AnyInt], *_: object
) -> tuple[Shape, Shape, Shape]:
    kept = x.rank - len(normalized_shape)
    require(
        kept >= 0 and x.shape[kept:] == tuple(normalized_shape),
        f"normalized_shape {list(normalized_shape)} must be x's last dims",
        x,
    )
    row = x.shape[:kept] + (1,) * len(normalized_shape)
    return x.shape, row, row


@op(
    "aten.native_layer_norm.default",
    "input normalized_shape:ints weight? bias? eps:float -> out mean rstd",
    shape=_layer_norm_shapes,
)
def layer_norm(
    x: Operand,
    normalized_shape: Sequence[AnyInt],
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
    out: Operand,
    mean: Operand,
    rstd: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    length = numel(tuple(int(size) for size in normalized_shape))
    for parameter in (weight, bias):
        require(
            parameter is None or parameter.numel == length, "weight and bias must fit the row", x, parameter
        )
    layout = row_layout(target, mean.numel, length)
    absent = {} if weight else {"gain": "1.0"}
    absent |= {} if bias else {"shift": "0.0"}
    yield Dispatch(
        kernel("layer_norm", **layout, **absent),
        x=x,
        weight=weight,
        bias=bias,
        out=out,
        mean=mean,
        rstd=rstd,
        rows=mean.numel,
        length=length,
        eps=eps,
        groups=row_groups(target, layout, mean.numel),
    )
