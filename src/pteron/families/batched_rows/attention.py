"""Batched attention: write each row's key and value to the cache of its sequence, then attend to that cache,
up to the row's position.

`places` has (position, slot) of every row, on the GPU; the host only knows the number of keys of the longest
sequence. Caches are [slots, capacity, heads, width]. Positions and slots out of range are clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.families.attention.kernels import Attention
from pteron.families.attention.layouts import context_bucket
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
    yield from _attend(query, key_cache, value_cache, places, context, scale, out, target)


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
    yield from _attend(rotated, key_cache, value_cache, places, context, scale, out, target)


def _attend(
    rows: Operand,
    key_cache: Operand,
    value_cache: Operand,
    places: Operand,
    context: AnyInt,
    scale: float | None,
    out: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """Attention of [..., heads, width] to at most `context` keys, each row a batch of one step. A plan holds
    for a bucket of contexts."""
    _check_rows(rows, key_cache, value_cache, places)
    capacity = key_cache.shape[1]
    require(1 <= context <= capacity, f"{context} keys, the caches hold {capacity}", key_cache)
    keys = min(context_bucket(context), capacity)
    shape = (places.shape[0], 1, *rows.shape[-2:])
    q, out = replace(rows, shape=shape), replace(out, shape=shape)
    attention = Attention(q, key_cache, value_cache, out, keys, scale=scale, places=places)
    yield from attention.dispatches(target)


def _check_rows(rows: Operand, key_cache: Operand, value_cache: Operand, places: Operand) -> None:
    """Check rows of queries or keys, [..., heads, width], against caches and places."""
    same = key_cache.rank == 4 and key_cache.shape == value_cache.shape
    require(same, "caches are of one shape, of rank 4", key_cache, value_cache)
    require(places.rank == 2 and places.shape[1] == 2, "places are [rows, 2]", places)
    slots, _, heads, width = key_cache.shape
    require(places.shape[0] <= slots, "there are no more rows than slots", places, key_cache)
    fits = rows.rank >= 2 and rows.shape[-1] == width and rows.shape[-2] % heads == 0
    fits = fits and rows.numel == places.shape[0] * rows.shape[-2] * width
    require(fits, "rows are heads of the caches' width, one row for each place", rows, key_cache, places)


def _check_keys(
    key: Operand, value: Operand, key_cache: Operand, value_cache: Operand, places: Operand
) -> None:
    _check_rows(key, key_cache, value_cache, places)
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
