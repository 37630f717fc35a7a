"""Batched attention: write each row's key and value to the cache of its sequence, then attend to that cache,
up to the row's position.

`places` has (position, slot) of every row, on the GPU; the host only knows the number of keys of the longest
sequence. Caches are [slots, capacity, heads, width]. Positions and slots out of range are clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pteron.families.attention.int8 import head_width, is_int8
from pteron.families.attention.kernels import Attention
from pteron.families.attention.layouts import context_bucket
from pteron.families.attention.options import Options
from pteron.families.attention.sdpa import attention_shape
from pteron.families.attention.write import Positions
from pteron.families.batched_rows.rope import rotate
from pteron.graph import Tensor
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, Operand, Target, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite


class RowCaches(NamedTuple):
    """Caches of keys and values of all sequences, and the (position, slot) of every row. Without values, they
    are the first columns of the keys."""

    keys: Operand
    values: Operand | None
    places: Operand

    def attention(
        self, rows: Operand, context: AnyInt, options: Options, out: Operand, value_width: int | None = None
    ) -> Attention:
        """Attention of [..., heads, width] to at most `context` keys, each row a batch of one step. A plan
        holds for a bucket of contexts."""
        self._check(rows)
        capacity, values = self.keys.shape[1], self.keys if self.values is None else self.values
        options = options.within(capacity)
        fits = context >= 1 and (options.ring > 0 or context <= capacity)
        require(fits, f"{context} keys, the caches hold {capacity}", self.keys)
        keys = context_bucket(context) if options.ring else min(context_bucket(context), capacity)
        count, heads, width = self.places.shape[0], rows.shape[-2], value_width or head_width(values)
        options.check(heads, rows)
        q = replace(rows, shape=(count, 1, heads, rows.shape[-1]))
        out = replace(out, shape=(count, 1, heads, width))
        return Attention(
            q, self.keys, values, out, keys, options=options, places=self.places, value_width=value_width
        )

    def positions(self, options: Options) -> Positions:
        """Where rows of keys and values go, for attention with these options."""
        return Positions(places=self.places, is_ring=options.within(self.keys.shape[1]).ring > 0)

    def check_keys(self, key: Operand, value: Operand | None) -> None:
        self._check(key)
        fits = key.shape[-2] == self.keys.shape[2] and (value is None) == (self.values is None)
        if value is not None and self.values is not None:
            fits = fits and value.shape == (*key.shape[:-1], head_width(self.values))
        require(fits, "keys and values have the heads of their caches", key, value or key, self.keys)

    def _check(self, rows: Operand) -> None:
        """Check rows of queries or keys, [..., heads, width], against caches and places."""
        values = self.keys if self.values is None else self.values
        same = self.keys.rank == values.rank == 4 and self.keys.shape[:3] == values.shape[:3]
        require(same, "caches are of one shape, of rank 4", self.keys, values)
        require(self.keys.dtype is values.dtype, "caches must have one element type", self.keys, values)
        places = self.places
        require(places.rank == 2 and places.shape[1] == 2, "places are [rows, 2]", places)
        heads, width = self.keys.shape[2], head_width(self.keys)
        fits = rows.rank >= 2 and rows.shape[-1] == width and rows.shape[-2] % heads == 0
        fits = fits and rows.numel == places.shape[0] * rows.shape[-2] * width
        require(fits, "rows are heads of the caches' width, one row for each place", rows, self.keys, places)


@op(
    "pteron.attend_rows",
    "query key value? key_cache! value_cache!? places context:int "
    "scale:float? window:int? softcap:float? sinks? slopes? value_width:int? -> out",
    shape=attention_shape,
)
def attend_rows(
    query: Operand, key: Operand, value: Operand | None, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    caches, (context, *options, value_width, out) = RowCaches(*arguments[:3]), arguments[3:]
    caches.check_keys(key, value)
    found = Options(*options)
    yield from caches.positions(found).write(key, caches.keys, value, caches.values)
    attention = caches.attention(query, context, found, out, value_width)
    yield from attention.dispatches(target)


@op(
    "pteron.rope_attend_rows",
    "query key value angles form:str key_cache! value_cache! places context:int scale:float? window:int? "
    "softcap:float? sinks? slopes? -> out",
    shape=same_shape,
)
def rope_attend_rows(
    query: Operand, key: Operand, value: Operand, angles: Operand, form: str, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """The same, with queries and keys rotated first."""
    caches, (context, *options, out) = RowCaches(*arguments[:3]), arguments[3:]
    caches.check_keys(key, value)
    require(value.shape == key.shape, "keys and values must have one shape", key, value)
    found = Options(*options)
    rotated, positions = query.scratch(), caches.positions(found)
    if is_int8(caches.keys):
        keys = key.scratch()
        yield rotate(angles, form, query, rotated, key, keys)
        yield from positions.write(keys, caches.keys, value, caches.values)
    else:
        yield rotate(angles, form, query, rotated, key, caches.keys, value, caches.values, positions)
    yield from caches.attention(rotated, context, found, out).dispatches(target)


@rewrite("rope_attend_rows")
def fuse_rope(flow: Flow) -> Iterator[Replacement]:
    """Attention of rows right after the rotation of their queries and keys."""
    for attention in flow.of("pteron.attend_rows"):
        query, key, value, *rest = attention.inputs
        rotation_call = flow.maker(query, "pteron.rope_rows")
        if not isinstance(key, Tensor) or not isinstance(value, Tensor) or key.shape_max != value.shape_max:
            continue
        if rotation_call and rotation_call.outputs == (query, key):
            xq, xk, angles, form = rotation_call.inputs
            inputs = (xq, xk, value, angles, form, *rest[:-1])
            new = Call(attention.node, OPERATORS["pteron.rope_attend_rows"], inputs, attention.outputs)
            yield Replacement((rotation_call, attention), new)
