"""Which experts a token goes to, and with which weights: the k best scores of router logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import DType
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, op, require
from pteron.ops.row_layout import row_groups, row_layout
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
EXPERTS_MAX = 1024
_SCORINGS = ("softmax", "sigmoid")


def _route_shapes(logits: Operand, k: AnyInt, *_: object) -> tuple[LiveShape, LiveShape]:
    require(logits.rank == 2, "logits must be [tokens, experts]", logits)
    count, kept = logits.shape[1], int(k)
    require(0 < kept <= count <= EXPERTS_MAX, f"{kept} of {count} experts, of at most {EXPERTS_MAX}", logits)
    return (logits.shape[0], kept), (logits.shape[0], kept)


def _check(
    logits: Operand, kept: int, scoring: str, bias: Operand | None, groups: int, kept_groups: int, best: int
) -> None:
    count = logits.shape[1]
    require(scoring in _SCORINGS, f"scoring {scoring!r} must be one of {', '.join(_SCORINGS)}", logits)
    require(bias is None or bias.numel == count, "bias must have a value per expert", logits, bias)
    fits = groups > 0 and count % groups == 0 and 0 < kept_groups <= groups
    fits = fits and best <= count // groups and kept <= count // groups * kept_groups
    require(fits, f"{groups} groups, {kept_groups} kept, by the best {best} of each", logits)


@op(
    "pteron.route.default",
    "logits k:int scoring:str bias? groups:int kept_groups:int group_best:int normalised:bool scale:float "
    "-> weights experts",
    shape=_route_shapes,
)
def route(
    logits: Operand, k: AnyInt, scoring: str, bias: Operand | None, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """The k experts with the highest score + bias, best first, and scores (without bias) as weights, divided
    by their sum if `normalised`, times `scale`.

    With groups of experts, only those of `kept_groups` groups can be chosen: of the groups with the highest
    sum of their `group_best` best scores.
    """
    *numbers, normalised, scale, weights, experts = arguments
    groups, kept_groups, group_best = map(int, numbers)
    _check(logits, int(k), scoring, bias, groups, kept_groups, group_best)
    require(experts.dtype in (DType.I32, DType.I64), "the numbers of experts must be integers", experts)
    rows, count = logits.shape
    if rows == 0:
        return
    layout = row_layout(target, rows, count)
    yield Dispatch(
        kernel("route"),
        **layout,
        EXPERTS=count,
        KEPT=int(k),
        GROUPS=groups,
        GROUPS_KEPT=kept_groups,
        GROUP_BEST=group_best,
        IS_SIGMOID=scoring == "sigmoid",
        IS_NORMALISED=bool(normalised),
        logits=logits,
        bias=bias,
        weights=weights,
        experts=experts,
        rows=rows,
        scale=float(scale),
        groups=row_groups(target, layout, rows),
    )


def _combine_shape(x: Operand, weights: Operand) -> LiveShape:
    fits = x.rank == 3 and x.shape[:2] == weights.shape
    require(fits, "x must be [tokens, k, width], weights [tokens, k]", x, weights)
    return x.shape[0], x.shape[2]


@op("pteron.combine.default", "x weights -> out", shape=_combine_shape)
def combine(
    x: Operand, weights: Operand, out: Operand, residual: Operand | None = None
) -> Iterator[Dispatch]:
    """The sum over k of weights · x, plus a residual of the same shape."""
    yield Dispatch(
        kernel("combine"),
        x=x,
        weights=weights,
        out=out,
        residual=residual,
        count=out.numel,
        kept=x.shape[1],
        width=x.shape[2],
        threads=out.numel,
    )
