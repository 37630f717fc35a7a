"""Attention over KV caches with rotated queries and keys (RoPE), as one call.

One dispatch rotates q and k and writes k and v into their caches; the rotated queries stay in scratch memory,
where attention reads them. If heads are normed before rotation, the same dispatch norms them, and v has a
dispatch of its own: WebGPU guarantees only eight buffers per kernel. Caches in 8 bits are written
from scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pteron.families.attention.options import Options
from pteron.families.attention.sdpa import KVCache
from pteron.families.rope.rotate import Angles, Norm, Rotation, norm_and_rotate, rotate
from pteron.graph import Tensor, Value
from pteron.ops import OPERATORS, Call, Dispatch, Operand, Target, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite, shape_of

Tables: TypeAlias = tuple[str, Value, Value, Value, Value]  # form, cosines, sines, start, end
Found: TypeAlias = tuple[tuple[Call, ...], tuple[Value, Value], Tables]


@op(
    "pteron.rope_sdpa",
    "query key value form:str cosines sines? start:int? end:int? key_cache! value_cache! start_pos:int "
    "attn_mask? is_causal:bool scale:float? window:int? softcap:float? sinks? slopes? "
    "query_weight? query_eps:float? key_weight? key_eps:float? -> out",
    shape=same_shape,
)
def rope_sdpa(
    query: Operand, key: Operand, value: Operand, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    mask, is_causal, options, norms = *arguments[8:10], Options(*arguments[10:15]), arguments[15:19]
    rotation, (keys, values, start) = Rotation(*arguments[:5]), arguments[5:8]
    cache = KVCache(keys, values, start, options.window)
    rotated, out = query.scratch(), arguments[19]
    by = checked_angles(query, key, value, rotation, cache)
    yield from rotate_into_caches(query, key, value, rotated, by, cache, head_norms(*norms), target)
    yield from cache.attention(rotated, mask, is_causal, options, out).dispatches(target)


def head_norms(
    query_weight: Operand | None, query_eps: float | None, key_weight: Operand | None, key_eps: float | None
) -> tuple[Norm, Norm] | None:
    """The norms of query and key heads, if both have one."""
    if query_weight is None or key_weight is None:
        return None
    return Norm(query_weight, query_eps or 0.0), Norm(key_weight, key_eps or 0.0)


def checked_angles(
    query: Operand, key: Operand, value: Operand, rotation: Rotation, cache: KVCache
) -> Angles:
    """The angles of queries and keys; raises if tables or caches do not suit these."""
    cache.check(query, key, value)
    require(query.shape[0] == key.shape[0], "queries and keys must have one batch size", query, key)
    require(query.shape[3] == key.shape[3], "queries and keys must have one width", query, key)
    by, _ = rotation.angles(query), rotation.angles(key)
    return by


def rotate_into_caches(
    query: Operand,
    key: Operand,
    value: Operand,
    rotated: Operand,
    by: Angles,
    cache: KVCache,
    norms: tuple[Norm, Norm] | None,
    target: Target,
) -> Iterator[Dispatch]:
    """Write rotated queries to `rotated`, and rotated keys and values to their caches."""
    landed = cache.landing(key)
    if norms is not None:
        of_queries, of_keys = norms
        yield norm_and_rotate(
            by,
            query,
            rotated,
            of_queries,
            key,
            landed.keys,
            of_keys,
            cache_start=landed.start,
            ring=landed.ring,
            target=target,
        )
    elif landed is cache:
        place: dict[str, Any] = {"cache_start": cache.start, "ring": cache.ring}
        yield rotate(by, query, rotated, key, cache.keys, value, cache.values, **place)
        return
    else:
        yield rotate(by, query, rotated, key, landed.keys)
    yield from cache.pack(landed._replace(values=value))


@rewrite("rope_sdpa")
def fuse_rope_sdpa(flow: Flow) -> Iterator[Replacement]:
    """Fuse a rotation of queries and keys with the attention that reads them."""
    for attention, (query, key, value, *rest) in _cached(flow):
        if found := _both_rotated(flow, query, key) or _each_rotated(flow, query, key):
            old, (query, key), tables = found
            inputs = (query, key, value, *tables, *rest, *[None] * 4)
            new = Call(attention.node, OPERATORS["pteron.rope_sdpa"], inputs, attention.outputs)
            yield Replacement((*old, attention), new)


def _cached(flow: Flow) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """Attention over caches of one shape: its call, and its arguments up to `slopes`."""
    for call in flow.of("sdpa_with_kv_cache.default"):
        yield call, (*call.inputs, *[None] * 4)
    for call in flow.of("pteron.attention.default"):
        _, _, value, keys, values, *_, value_width = call.inputs
        shapes = [each.shape_max for each in (keys, values) if isinstance(each, Tensor)]
        if value is not None and value_width is None and shapes[1:] == shapes[:1]:
            yield call, (*call.inputs[:6], None, True, *call.inputs[6:-1])


def _both_rotated(flow: Flow, query: Value, key: Value) -> Found | None:
    """The call that rotates queries and keys, its inputs, and its tables."""
    forms = {
        "et_vk.apply_rotary_emb.default": "neighbours",
        "pteron.rope_slice": "neighbours",
        "et_vk.apply_rotary_emb_hf.default": "halves",
    }
    for name, form in forms.items():
        call = flow.maker(query, name)
        if call and call.outputs == (query, key):
            xq, xk, cosines, sines, start, end = (*call.inputs, None, None)[:6]
            # Rows of other tables differ by head or batch.
            if any(len(shape_of(table) or ()) != 2 for table in (cosines, sines)):
                return None
            return (call,), (xq, xk), (form, cosines, sines, start, end)
    return None


def _each_rotated(flow: Flow, query: Value, key: Value) -> Found | None:
    """The two calls that rotate queries and keys by the same table, their inputs, and the table."""
    name = "et_vk.apply_rotary_emb_interleaved.default"
    by_query, by_key = flow.maker(query, name), flow.maker(key, name)
    if not by_query or not by_key or by_query.inputs[1] is not by_key.inputs[1]:
        return None
    (xq, table), (xk, _) = by_query.inputs, by_key.inputs
    return (by_query, by_key), (xq, xk), ("pairs", table, None, None, None)


@rewrite("norm_rope_sdpa")
def fuse_norms(flow: Flow) -> Iterator[Replacement]:
    """Fuse the RMS norms of query and key heads into the rotation that follows."""
    for attention in flow.of("pteron.rope_sdpa"):
        query, key, *rest = attention.inputs
        by_query, by_key = (flow.maker(x, "et_vk.rms_norm.default") for x in (query, key))
        if by_query and by_key and rest[-4:] == [None] * 4:
            (xq, *query_norm), (xk, *key_norm) = by_query.inputs, by_key.inputs
            inputs = (xq, xk, *rest[:-4], *query_norm, *key_norm)
            new = Call(attention.node, attention.operator, inputs, attention.outputs)
            yield Replacement((by_query, by_key, attention), new)
