"""The scan of Mamba-2 (state space duality): a state for each head, which forgets and adds at every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import DType
from pteron.families.recurrent.recurrence import recurrent
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, require
from pteron.ops.row_layout import SOFTWARE_ROWS, SUBGROUP, row_groups, shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
_F32_MAX = 3.4028234e38


def _shape(
    xbc: Operand, dt: Operand, a: Operand, d: Operand, dt_bias: Operand, groups: AnyInt, *rest: Any
) -> LiveShape:
    state: Operand = rest[2]
    require(
        state.rank == 4 and state.dtype is DType.F32, "state must be [1, heads, width, columns], f32", state
    )
    _, heads, width, columns = state.shape
    count = int(groups)
    require(count > 0 and heads % count == 0, f"{heads} heads in {count} groups", state)
    size = heads * width + 2 * count * columns
    fits = xbc.rank == 3 and xbc.shape[::2] == (1, size) and dt.shape == (*xbc.shape[:-1], heads)
    require(fits, f"xbc must be [1, steps, {size}] and dt [1, steps, {heads}]", xbc, dt)
    fits = all(each.shape == (heads,) for each in (a, d, dt_bias))
    require(fits, "a, d and dt_bias must have a number per head", a, d, dt_bias)
    return (*xbc.shape[:-1], heads * width)


@recurrent("pteron.ssm_scan", "xbc dt a d dt_bias groups:int dt_min:float dt_max:float? -> out", shape=_shape)
def ssm_scan(
    xbc: Operand, dt: Operand, a: Operand, d: Operand, dt_bias: Operand, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """For each step and head, with a state S [width, columns] in f32:

        S ← exp(dt · a) · S + dt · x ⊗ B;  out = S · C + d · x

    A step of xbc has x [heads, width], B and C [groups, columns]; heads of a group share B and C. dt becomes
    softplus(dt + dt_bias), bounded by `dt_min` and `dt_max`.
    """
    groups, dt_min, dt_max, state, sequences, out = arguments
    steps, (_, heads, width, columns) = xbc.shape[1], state.shape
    sequences.check(state, steps)
    if steps == 0:
        return
    count, length = (1, steps) if sequences.places is None else (steps, 1)
    rows = count * heads * width
    # More lanes than a subgroup would need barriers at every step.
    layout = shared_rows(target, *((1, SOFTWARE_ROWS) if target.is_cpu else (SUBGROUP, 2)))
    own = -(-columns // layout["LANES"])
    most = (target.loop_max - 2 * own) // (own + 9) if target.loop_max else length
    first: AnyInt = 0
    while first < length:  # as many steps as the device's loops may have
        yield Dispatch(
            kernel("ssm_scan"),
            **layout,
            STATE=columns,
            xbc=xbc,
            dt=dt,
            a=a,
            d=d,
            dt_bias=dt_bias,
            out=out,
            sequences=count,
            length=length,
            first=first,
            steps=min(most, length - first),
            heads=heads,
            width=width,
            group_count=int(groups),
            dt_min=dt_min,
            dt_max=_F32_MAX if dt_max is None else dt_max,
            groups=row_groups(target, layout, rows),
            **sequences.arguments(state) | {"start": sequences.start + first},
        )
        first += most
