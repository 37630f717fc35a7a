"""Batched attention: write each row's key and value to the cache of its sequence, then attend to that
cache."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.attention.batched_rows import RowAttention, check_rows
from pteron.families.batched_rows.rope import rotate
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, Operand, Target, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


@op(
    "pteron.attend_rows",
    "query key value key_cache! value_cache! places context:int scale:float? -> out",
    shape=same_shape,
)
def attend_rows(
    query: Operand,
    key: Operand,
    value: Operand,
    key_cache: Operand,
    value_cache: Operand,
    places: Operand,
    context: AnyInt,
    scale: float | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    _check_keys(key, value, key_cache, value_cache, places)
    slots, capacity, heads, width = key_cache.shape
    yield Dispatch(
        kernel("write_rows"),
        k=key,
        v=value,
        places=places,
        k_out=key_cache,
        v_out=value_cache,
        count=key.numel,
        row=heads * width,
        slots=slots,
        capacity=capacity,
        threads=key.numel,
    )
    attention = RowAttention.of(query, key_cache, value_cache, places, context, scale, out)
    yield from attention.dispatches(target)


@op(
    "pteron.rope_attend_rows",
    "query key value angles form:str key_cache! value_cache! places context:int scale:float? -> out",
    shape=same_shape,
)
def rope_attend_rows(
    query: Operand,
    key: Operand,
    value: Operand,
    angles: Operand,
    form: str,
    key_cache: Operand,
    value_cache: Operand,
    places: Operand,
    context: AnyInt,
    scale: float | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """The same, with queries and keys rotated first."""
    _check_keys(key, value, key_cache, value_cache, places)
    rotated = query.scratch()
    yield rotate(angles, form, query, rotated, key, key_cache, value, value_cache, places)
    attention = RowAttention.of(rotated, key_cache, value_cache, places, context, scale, out)
    yield from attention.dispatches(target)


def _check_keys(
    key: Operand, value: Operand, key_cache: Operand, value_cache: Operand, places: Operand
) -> None:
    check_rows(key, key_cache, value_cache, places)
    fits = key.shape == value.shape and key.shape[-2:] == key_cache.shape[2:]
    require(fits, "keys and values have the heads of their caches", key, value, key_cache)


@rewrite("rope_attend_rows")
def fuse_rope(flow: Flow) -> Iterator[Replacement]:
    """Attention of rows right after the rotation of their queries and keys."""
    for attention in flow.of("pteron.attend_rows"):
        query, key, *rest = attention.inputs
        rotation_call = flow.maker(query, "pteron.rope_rows")
        if rotation_call and rotation_call.outputs == (query, key):
            xq, xk, angles, form = rotation_call.inputs
            value, *rest = rest
            inputs = (xq, xk, value, angles, form, *rest)
            new = Call(attention.node, OPERATORS["pteron.rope_attend_rows"], inputs, attention.outputs)
            yield Replacement((rotation_call, attention), new)
