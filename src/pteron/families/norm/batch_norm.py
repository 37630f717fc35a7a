"""Batch norm by statistics that were taken in training."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _batch_norm_shapes(x: Operand, *_: object) -> tuple[Shape, Shape, Shape]:
    require(x.rank >= 2, "batch norm takes two dims or more", x)
    return x.shape, (0,), (0,)  # the statistics of this batch, which are not computed


@op(
    "aten._native_batch_norm_legit_no_training.default",
    "input weight? bias? running_mean running_var momentum:ignored eps:float -> out save_mean save_invstd",
    shape=_batch_norm_shapes,
)
def batch_norm(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    running_mean: Operand,
    running_var: Operand,
    eps: float,
    out: Operand,
    save_mean: Operand,
    save_invstd: Operand,
) -> Iterator[Dispatch]:
    channels = x.shape[1]
    for parameter in (weight, bias, running_mean, running_var):
        fits = parameter is None or parameter.shape == (channels,)
        require(fits, "weight, bias and statistics must have a number per channel", x, parameter)
    absent = {} if weight else {"gain": "1.0"}
    absent |= {} if bias else {"shift": "0.0"}
    yield Dispatch(
        kernel("batch_norm", **absent),
        x=x,
        weight=weight,
        bias=bias,
        mean=running_mean,
        variance=running_var,
        out=out,
        count=x.numel,
        channels=channels,
        plane=numel(x.shape[2:]),
        eps=eps,
        threads=x.numel,
    )
