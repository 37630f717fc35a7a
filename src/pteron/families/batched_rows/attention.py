"""Batched attention: write each row's key and value to the cache of its sequence, then attend to that cache,
up to the row's position.

`places` has (position, slot) of every row, on the GPU; the host only knows the number of keys of the longest
sequence. Caches are [slots, capacity, heads, width]. Positions and slots out of range are clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pteron.families.attention.kernels import Attention
from pteron.families.attention.layouts import context_bucket
from pteron.families.batched_rows.rope import rotate
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, Operand, Target, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


class RowCaches(NamedTuple):
    """Caches of keys and values of all sequences, and the (position, slot) of every row."""

    keys: Operand
    values: Operand
    places: Operand

    def attention(self, rows: Operand, context: AnyInt, scale: float | None, out: Operand) -> Attention:
        """Attention of [..., heads, width] to at most `context` keys, each row a batch of one step. A plan
        holds for a bucket of contexts."""
        self._check(rows)
        capacity = self.keys.shape[1]
        require(1 <= context <= capacity, f"{context} keys, the caches hold {capacity}", self.keys)
        keys = min(context_bucket(context), capacity)
        shape = (self.places.shape[0], 1, *rows.shape[-2:])
        q, out = replace(rows, shape=shape), replace(out, shape=shape)
        return Attention(q, self.keys, self.values, out, keys, scale=scale, places=self.places)

    def check_keys(self, key: Operand, value: Operand) -> None:
        self._check(key)
        fits = key.shape == value.shape and key.shape[-2:] == self.keys.shape[2:]
        require(fits, "keys and values have the heads of their caches", key, value, self.keys)

    def _check(self, rows: Operand) -> None:
        """Check rows of queries or keys, [..., heads, width], against caches and places."""
        same = self.keys.rank == 4 and self.keys.shape == self.values.shape
        require(same, "caches are of one shape, of rank 4", self.keys, self.values)
        places = self.places
        require(places.rank == 2 and places.shape[1] == 2, "places are [rows, 2]", places)
        slots, _, heads, width = self.keys.shape
        require(places.shape[0] <= slots, "there are no more rows than slots", places, self.keys)
        fits = rows.rank >= 2 and rows.shape[-1] == width and rows.shape[-2] % heads == 0
        fits = fits and rows.numel == places.shape[0] * rows.shape[-2] * width
        require(fits, "rows are heads of the caches' width, one row for each place", rows, self.keys, places)


@op(
    "pteron.attend_rows",
    "query key value key_cache! value_cache! places context:int scale:float? -> out",
    shape=same_shape,
)
def attend_rows(
    query: Operand, key: Operand, value: Operand, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    caches = RowCaches(*arguments[:3])
    caches.check_keys(key, value)
    slots, capacity, heads, width = caches.keys.shape
    yield Dispatch(
        kernel("write_rows"),
        k=key,
        v=value,
        places=caches.places,
        k_out=caches.keys,
        v_out=caches.values,
        count=key.numel,
        row=heads * width,
        slots=slots,
        capacity=capacity,
        threads=key.numel,
    )
    yield from caches.attention(query, *arguments[3:]).dispatches(target)


@op(
    "pteron.rope_attend_rows",
    "query key value angles form:str key_cache! value_cache! places context:int scale:float? -> out",
    shape=same_shape,
)
def rope_attend_rows(
    query: Operand, key: Operand, value: Operand, angles: Operand, form: str, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """The same, with queries and keys rotated first."""
    caches = RowCaches(*arguments[:3])
    caches.check_keys(key, value)
    rotated = query.scratch()
    yield rotate(angles, form, query, rotated, key, caches.keys, value, caches.values, caches.places)
    yield from caches.attention(rotated, *arguments[3:]).dispatches(target)


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
