"""Distances between all pairs of points of two sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pteron.ops import Dispatch, LiveShape, Operand, numel, op, require
from pteron.ops.row_layout import WALK_MAX
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# The overrides of the kernel by the norm: by its default it is Euclidean.
_NORMS: dict[float, dict[str, Any]] = {
    0.0: {"IS_COUNT": True},
    1.0: {"IS_SUM": True},
    2.0: {},
    math.inf: {"IS_LARGEST": True},
}
_ANY_NORM: dict[str, Any] = {"IS_POWER": True}


def _shape(a: Operand, b: Operand, *_: object) -> LiveShape:
    require(a.rank >= 2 and a.shape[:-2] == b.shape[:-2], "both sets of points must have one batch", a, b)
    require(a.shape[-1] == b.shape[-1], "points must have one number of coordinates", a, b)
    require(a.shape[-1] <= WALK_MAX, f"points have at most {WALK_MAX} coordinates", a, b)
    return (*a.shape[:-1], b.shape[-2])


@op("aten._cdist_forward.default", "x1 x2 p:number compute_mode:ignored -> out", shape=_shape)
def cdist(a: Operand, b: Operand, p: float, out: Operand) -> Iterator[Dispatch]:
    require(p >= 0, f"the norm {p} must not be negative", a)
    yield Dispatch(
        kernel("distances"),
        **_NORMS.get(float(p), _ANY_NORM),
        a=a,
        b=b,
        out=out,
        batch=numel(a.shape[:-2]),
        rows=a.shape[-2],
        columns=b.shape[-2],
        depth=a.shape[-1],
        p=0.0 if math.isinf(p) else float(p),
        threads=out.numel,
    )
