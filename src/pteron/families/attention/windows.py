"""Attention from uniform arrays (attention_windows.wgsl), the fastest loads on software adapters. A window
is a part of a cache, bound as a uniform array. A split of the context has four windows; a launch processes
the queries of a few steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import Storage
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, OperandSlice, Scratch, Target, bucket
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ARRAYS = "abcd"  # the windows of a split
SPAN_MAX = 64  # keys per window: an invocation keeps the scores of a quarter of them
ROWS_MAX = 8  # queries per workgroup
BUCKET = 64  # keys: shorter contexts share one grid
LAUNCHES_MAX = 512  # for calls of several steps: with more, planning costs more than it saves


def suits(q: Operand, k: Operand, v: Operand, out: Operand, context: AnyInt, target: Target) -> bool:
    """Whether one sequence's queries and caches, [1, steps, heads, width], fit into a few uniform arrays."""
    operands = q, k, v, out
    step_bytes = [4 * numel(operand.shape[2:]) for operand in operands]
    return (
        target.is_cpu
        and target.broadcasts
        and q.shape[0] == 1
        and q.shape[3] % 4 == 0
        and all(operand.storage is Storage.F32 for operand in operands)
        and all(size % target.uniform_alignment == 0 for size in step_bytes)
        and max(step_bytes) <= target.uniform_bytes_max
        and _span(k, target) >= 4
        and _is_short(q, k, context, target)
    )


def attend(
    q: Operand,
    k: Operand,
    v: Operand,
    out: Operand,
    context: AnyInt,
    start: AnyInt,
    scale: float,
    causal: bool,
    target: Target,
) -> Iterator[Dispatch]:
    """The launches: for every few steps, one per split; then the merge."""
    (_, steps, heads, width), (_, capacity, key_heads, _) = q.shape, k.shape
    tile, rows = _rows(steps, heads // key_heads, 4 * heads * width, target)
    span = _span(k, target)
    keys, splits = _splits(k, context, target)
    live = min(-(-keys // (4 * len(ARRAYS) * splits)) * 4, span)  # keys per window that are used
    parts = Scratch(steps * heads * splits * (width + 4)) if splits > 1 else None
    declarations: dict[str, Any] = {
        "HEADS": heads,
        "KEY_HEADS": key_heads,
        "WIDTH": width,
        "STEPS": tile,
        "ROWS": rows,
        "SPAN": span,
        "CAUSAL": causal,
    }
    made = kernel(
        "attention_windows", **declarations, **({} if parts else {"use_store_split": "store_whole"})
    )
    common: dict[str, Any] = {
        "first_query": 0,
        "queries": steps * heads,
        "splits": splits,
        "span": live,
        "steps": steps,
        "heads": heads,
        "context": context,
        "start": start,
        "scale": scale,
        "out_strides": (out.strides[0], out.strides[1], out.strides[2]),
        "parts": parts,
        "out": None if parts else out,
        "groups": (key_heads * tile * (heads // key_heads) // rows, 1, 1),
    }
    for split in range(splits):
        first = split * len(ARRAYS) * live
        wanted = [first + place * live for place in range(len(ARRAYS))]
        starts = [min(key, capacity - span) for key in wanted]
        caches: dict[str, Any] = {
            f"{name}_{array}": OperandSlice(cache, key * key_heads * width)
            for name, cache in (("k", k), ("v", v))
            for array, key in zip(ARRAYS, starts, strict=True)
        }
        shifts = [min(key - at, span) for key, at in zip(wanted, starts, strict=True)]
        for first_step in (*range(0, steps - tile, tile), steps - tile):
            yield Dispatch(
                made,
                q=OperandSlice(q, first_step * heads * width),
                **caches,
                **common,
                split=split,
                first=first,
                first_step=first_step,
                shifts=shifts,
            )
    if parts:
        yield Dispatch(
            kernel("attention_merge", WIDTH=width),
            parts=parts,
            out=out,
            count=steps * heads * width,
            first=0,
            splits=splits,
            split=len(ARRAYS) * live,
            context=context,
            steps=steps,
            heads=heads,
            out_strides=common["out_strides"],
            threads=steps * heads * width,
        )


def _is_short(q: Operand, k: Operand, context: AnyInt, target: Target) -> bool:
    """Whether few launches are enough; a single step may take any number."""
    _, steps, heads, width = q.shape
    tile, _ = _rows(steps, heads // k.shape[2], 4 * heads * width, target)
    tiles = -(-steps // tile)
    return tiles <= 1 or tiles * _splits(k, context, target)[1] <= LAUNCHES_MAX


def _splits(k: Operand, context: AnyInt, target: Target) -> tuple[int, int]:
    """(keys in the context's bucket, splits of them)."""
    keys = min(bucket(context, BUCKET), k.shape[1])
    return keys, -(-keys // (len(ARRAYS) * _span(k, target)))


def _span(cache: Operand, target: Target) -> int:
    """Keys per window of a cache, a multiple of 4."""
    fit = target.uniform_bytes_max // (4 * max(numel(cache.shape[2:]), 1))
    return min(fit, SPAN_MAX, cache.shape[1]) // 4 * 4


def _rows(steps: int, heads_per_key: int, step_bytes: int, target: Target) -> tuple[int, int]:
    """(steps per launch, queries per workgroup). A workgroup takes all queries of a key head in those steps,
    or some queries of one step."""
    tile = ROWS_MAX // heads_per_key
    if 1 <= tile <= steps and tile * step_bytes <= target.uniform_bytes_max:
        return tile, tile * heads_per_key
    return 1, next(rows for rows in range(min(ROWS_MAX, heads_per_key), 0, -1) if heads_per_key % rows == 0)
