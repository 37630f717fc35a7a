"""Scaled dot-product attention, with and without a cache that lives in the graph.

Caches are [batch, capacity, heads, width]. A call has as many queries as new keys: it writes its keys and
values at steps [start, start + steps), then attends to all steps written so far. `pteron.attention.default`
is `sdpa_with_kv_cache` with options (options.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pteron.families.attention.int8 import head_width, is_int8
from pteron.families.attention.kernels import Attention
from pteron.families.attention.options import PLAIN, Options
from pteron.families.attention.write import Positions
from pteron.families.create.fill import fill
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, op, require, same_shape


class KVCache(NamedTuple):
    """Caches of keys and values, the step that a call writes its first key and value to, and the window of
    its attention. With a window shorter than the caches, these may be rings (write.py)."""

    keys: Operand
    values: Operand
    start: AnyInt
    window: int | None = None

    @property
    def ring(self) -> int:
        """The rows of a cache that may be a ring; 0: it is none."""
        return self._options.ring

    @property
    def _options(self) -> Options:
        return Options(window=self.window).within(self.keys.shape[1])

    def check(self, query: Operand, key: Operand, value: Operand) -> None:
        """Check the operands of attention over these caches, before keys and values are written."""
        _require_rank(query, key, value, self.keys, self.values)
        _check_steps(query, key)
        require(key.shape == value.shape, "keys and values must have one shape", key, value)
        same = self.keys.shape == self.values.shape
        require(same, "both caches must have one shape", self.keys, self.values)
        _check_place(key, self.keys, self.start, self._options)

    def landing(self, key: Operand) -> KVCache:
        """Where a kernel that computes keys and values writes them: to the caches or, if these have 8 bits,
        to scratch memory in the shape of `key`, which `pack` reads."""
        return KVCache(key.scratch(), key.scratch(), 0) if is_int8(self.keys) else self

    def pack(self, landed: KVCache) -> Iterator[Dispatch]:
        """Write keys and values that are elsewhere to the caches."""
        for x, cache in ((landed.keys, self.keys), (landed.values, self.values)):
            if x is not cache:
                yield from write_cache(x, cache, self.start, self.window)

    def attention(
        self, query: Operand, mask: Operand | None, is_causal: bool, options: Options, out: Operand
    ) -> Attention:
        """Attention of queries, the first at position `start`, to the cached keys up to the last query."""
        context, options = self.start + query.shape[1], options.within(self.keys.shape[1])
        return Attention(query, self.keys, self.values, out, context, mask, options, self.start, is_causal)


def _check_steps(query: Operand, *new: Operand) -> None:
    """There is a new key, and a value, for every query."""
    _require_rank(query, *new)
    for each in new:
        require(each.shape[1] == query.shape[1], "queries and keys must have the same steps", query, each)


def _require_rank(*operands: Operand) -> None:
    """Each operand must have a batch, steps, heads and a width."""
    require(all(operand.rank == 4 for operand in operands), "attention takes tensors of rank 4", *operands)


def _check_place(value: Operand, cache: Operand, start: AnyInt, options: Options) -> None:
    """A cache must have room for `value` from `start` on; a ring for `value` and the window before it."""
    _require_rank(value, cache)
    steps, capacity = value.shape[1], cache.shape[1]
    same = (value.shape[0], *value.shape[2:]) == (cache.shape[0], cache.shape[2], head_width(cache))
    require(same, "value and cache must differ in their second dim only", value, cache)
    is_ring = options.window is not None and options.window + steps - 1 <= capacity
    inside = start >= 0 and (is_ring or start + steps <= capacity)
    positions = f"positions {start} to {start + steps}"
    require(inside, f"{positions} exceed the cache's capacity {capacity}", value, cache)


def write_cache(
    value: Operand, cache: Operand, start: AnyInt, window: int | None = None
) -> Iterator[Dispatch]:
    """Write `value` into the cache's rows from `start` on, for attention with this window."""
    options = Options(window=window).within(cache.shape[1]) if cache.rank == 4 else PLAIN
    _check_place(value, cache, start, options)
    yield from Positions(start, is_ring=options.ring > 0).write(value, cache)


@op("update_cache.default", "value cache! start_pos:int -> out", shape=lambda *_: (1,))
def update_cache(value: Operand, cache: Operand, start_pos: AnyInt, out: Operand) -> Iterator[Dispatch]:
    yield from write_cache(value, cache, start_pos)
    yield fill(out, 0)  # the output only orders calls, but a call may read it


@op(
    "sdpa_with_kv_cache.default",
    "query key value key_cache! value_cache! start_pos:int seq_len:ignored attn_mask? drpout_p:ignored "
    "is_causal:bool scale:float? -> out",
    shape=same_shape,
)
def sdpa_with_kv_cache(
    query: Operand, key: Operand, value: Operand, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    cache, (mask, is_causal, scale, out) = KVCache(*arguments[:3]), arguments[3:]
    cache.check(query, key, value)
    yield from write_cache(key, cache.keys, cache.start)
    yield from write_cache(value, cache.values, cache.start)
    yield from cache.attention(query, mask, is_causal, Options(scale), out).dispatches(target)


def attention_shape(query: Operand, key: Operand, value: Operand | None, *rest: Any) -> LiveShape:
    """That of queries, in the width of values: their own, or the last argument."""
    width = rest[-1] if value is None or value.rank == 0 else value.shape[-1]
    require(width is not None, "attention needs values or their width", query, key)
    return (*query.shape[:-1], int(width))


@op(
    "pteron.attention.default",
    "query key value? key_cache! value_cache!? start_pos:int "
    "scale:float? window:int? softcap:float? sinks? slopes? value_width:int? -> out",
    shape=attention_shape,
)
def attention(
    query: Operand, key: Operand, value: Operand | None, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """Causal attention over caches, with options. Values may have another width than keys. Without values and
    their cache, values are the first `value_width` columns of the keys."""
    keys, values, start, *options, value_width, out = arguments
    _check_steps(query, key, *(() if value is None else (value,)))
    is_whole = value is not None and values is not None and value_width is None
    is_part = value is values is None and keys.rank == 4 and 0 < value_width <= head_width(keys)
    require(is_whole or is_part, "there are values with a cache, or a width of values in the keys", key, keys)
    same = values is None or keys.dtype is values.dtype
    require(same, "both caches must have one element type", keys, values or keys)
    found = Options(*options)
    found.check(query.shape[2], query)
    yield from write_cache(key, keys, start, found.window)
    if value is not None:
        yield from write_cache(value, values, start, found.window)
    cache = KVCache(keys, keys if values is None else values, start)
    made = cache.attention(query, None, True, found, out)
    yield from replace(made, value_width=value_width and int(value_width)).dispatches(target)


@op(
    "custom_sdpa.default",
    "query key value start_pos:int attn_mask? drpout_p:ignored is_causal:bool scale:float? -> out",
    shape=same_shape,
)
def custom_sdpa(
    query: Operand, key: Operand, value: Operand, start_pos: AnyInt, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    attn_mask, is_causal, scale, out = arguments
    _require_rank(query, key, value)
    steps, capacity = query.shape[1], key.shape[1]
    inside = start_pos >= 0 and start_pos + steps <= capacity
    require(inside, f"positions {start_pos} to {start_pos + steps} exceed the {capacity} keys", query, key)
    context = start_pos + steps if attn_mask is None else capacity
    attention = Attention(query, key, value, out, context, attn_mask, Options(scale), start_pos, is_causal)
    yield from attention.dispatches(target)


@op("et_vk.sdpa.default", "q k v attn_mask? scale:float? -> out", shape=same_shape)
def sdpa(q: Operand, k: Operand, v: Operand, *arguments: Any, target: Target) -> Iterator[Dispatch]:
    attn_mask, scale, out = arguments
    _require_rank(q, k, v)
    attention = Attention(q, k, v, out, k.shape[2], attn_mask, Options(scale), heads_first=True)
    yield from attention.dispatches(target)
