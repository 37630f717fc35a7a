"""Attention from uniform arrays (attention_uniform.wgsl), the fastest loads on software adapters. Each has
some keys of a cache. A split of the context has four; a launch processes the queries of a few steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from pteron.dtypes import Storage
from pteron.families.layout.copy import copy_strided
from pteron.ops import AnyInt, Dispatch, LiveInt, OperandSlice, Target, bucket, most, numel, parts_of
from pteron.ops.operand import contiguous_strides
from pteron.ops.strided import Strided
from pteron.ops.uniform_arrays import Cut

ARRAYS = "abcd"  # of a split
SPAN_MAX = 64  # keys per array: an invocation keeps the scores of a quarter of them
ROWS_MAX = 4  # queries per workgroup; Mesa takes 50 s to compile eight for vectors of 256 bits
BUCKET = 64  # keys: shorter contexts share one grid
COPY_QUERIES_MIN = 8  # of a key: with fewer, keys and values are not worth a copy
LAUNCHES_MAX = 512  # for calls of several steps: with more, planning costs more than it saves


def suits(q: Strided, k: Strided, v: Strided, out: Strided, context: AnyInt, target: Target) -> bool:
    """Whether queries, keys and values, [batch, steps, heads, width], fit into a few uniform arrays."""
    operands = q, k, v, out
    step_bytes = [4 * numel(operand.shape[2:]) for operand in operands]
    queries = numel(q.shape[1:3]) // k.shape[2]  # of a key
    return (
        target.has_uniform_arrays
        and q.shape[3] % 4 == 0
        and all(operand.storage is Storage.F32 for operand in operands)
        and q.source.has_slack
        and all(size % target.uniform_alignment == 0 for size in step_bytes)
        and max(step_bytes) <= target.uniform_bytes_max
        and out.first == 0
        and out.is_bindable(4)
        and (queries >= COPY_QUERIES_MIN or (_is_in_order(k, target) and _is_in_order(v, target)))
        and _span(k, target) >= 4
        and _is_short(q, k, context, target)
    )


def in_order(x: Strided, target: Target) -> tuple[Strided, list[Dispatch]]:
    """The same elements, contiguous, and the copy that this needs, if any."""
    if _is_in_order(x, target):
        return x, []
    made = x.source.scratch(x.shape)
    copy = copy_strided(x.source, made, x.shape, x.strides, made.strides, x_offset=x.first)
    return Strided.of(made), [copy]


@dataclass(frozen=True, slots=True)
class UniformAttention:
    """A launch takes `tile` steps of a sequence, `rows` queries per workgroup, and a split of the context:
    a piece of its keys in each of four arrays, which hold `span`."""

    q: Strided
    k: Strided
    v: Strided
    tile: int
    rows: int
    span: int
    context: Cut  # in quads of keys

    @classmethod
    def of(cls, q: Strided, k: Strided, v: Strided, context: AnyInt, target: Target) -> UniformAttention:
        """Of tensors whose elements are in a row (`in_order`)."""
        _, steps, heads, width = q.shape
        heads, width, key_heads = int(heads), int(width), int(k.shape[2])
        tile, rows = _rows(steps, heads // key_heads, 4 * heads * width, target)
        return cls(q, k, v, tile, rows, _span(k, target), _cut(k, context, target))

    @property
    def splits(self) -> int:
        return self.context.launches

    @property
    def live(self) -> int:
        """Keys of an array."""
        return 4 * self.context.piece

    @property
    def split(self) -> int:
        """Keys of a split."""
        return len(ARRAYS) * self.live

    @property
    def declarations(self) -> dict[str, Any]:
        return {
            "HEADS": self.q.shape[2],
            "KEY_HEADS": self.k.shape[2],
            "WIDTH": self.q.shape[3],
            "VALUE_WIDTH": self.q.shape[3],
            "STEPS": self.tile,
            "ROWS": self.rows,
            "SPAN": self.span,
        }

    def launches(self) -> Iterator[dict[str, Any]]:
        """What each launch binds, its parameters and grid."""
        (batch, steps, heads, _), capacity = self.q.shape, self.k.shape[1]
        splits, tiles = list(enumerate(self.context.firsts)), tuple(parts_of(steps, self.tile))
        for (sequence, is_batched), (split, first) in product(parts_of(batch, 1), splits):
            wanted = [4 * place for place in self.context.places(first)]
            # The last array ends with the memory of the keys, or, if it holds more, in the slack after them.
            last = max(0, most(capacity) - self.span)
            starts = [min(key, last) for key in wanted]
            caches: dict[str, Any] = {
                f"{name}_{array}": _slice(cache, sequence, key)
                for name, cache in (("k", self.k), ("v", self.v))
                for array, key in zip(ARRAYS, starts, strict=True)
            }
            for first_step, is_there in tiles:
                yield {
                    **caches,
                    "q": _slice(self.q, sequence, first_step),
                    "sequence": sequence * is_batched,  # masks of sequences past the end are not read
                    "split": split,
                    "first": wanted[0],
                    "span": self.live,
                    "first_step": first_step,
                    "shifts": [min(key - at, self.span) for key, at in zip(wanted, starts, strict=True)],
                    "groups": (heads * self.tile // self.rows * is_there * is_batched, 1, 1),
                }


def _slice(x: Strided, sequence: int, step: AnyInt) -> OperandSlice:
    return OperandSlice(x.source, x.first + (sequence * x.shape[1] + step) * numel(x.shape[2:]))


def _is_in_order(x: Strided, target: Target) -> bool:
    """Whether it is contiguous, and starts where a uniform binding may."""
    steps = zip(x.shape, x.strides, contiguous_strides(x.shape), strict=True)
    in_row = all(stride == wanted for size, stride, wanted in steps if size > 1)
    return in_row and 4 * x.first % target.uniform_alignment == 0


def _is_short(q: Strided, k: Strided, context: AnyInt, target: Target) -> bool:
    """Whether few launches are enough; a single step may take any number."""
    batch, steps, (heads, width) = *q.shape[:2], map(int, q.shape[2:])
    tile, _ = _rows(steps, heads // int(k.shape[2]), 4 * heads * width, target)
    tiles = len(list(parts_of(batch, 1))) * len(list(parts_of(steps, tile)))
    return tiles <= 1 or tiles * _cut(k, context, target).launches <= LAUNCHES_MAX


def _cut(k: Strided, context: AnyInt, target: Target) -> Cut:
    """The keys in the context's bucket."""
    keys = min(bucket(context, BUCKET), most(k.shape[1]))
    return Cut.of(-(-keys // 4), _span(k, target) // 4, len(ARRAYS))


def _span(cache: Strided, target: Target) -> int:
    """Keys per array of a cache, a multiple of 4."""
    fit = target.uniform_bytes_max // (4 * max(int(numel(cache.shape[2:])), 1))
    keys = cache.shape[1]
    return min(fit, SPAN_MAX, bucket(keys, 4) if isinstance(keys, LiveInt) else keys) // 4 * 4


def _rows(steps: AnyInt, heads_per_key: int, step_bytes: int, target: Target) -> tuple[int, int]:
    """(steps per launch, queries per workgroup). A workgroup takes all queries of a key head in those steps,
    or some queries of one step."""
    tile = ROWS_MAX // heads_per_key
    if 1 <= tile <= steps and tile * step_bytes <= target.uniform_bytes_max:
        return tile, tile * heads_per_key
    return 1, next(rows for rows in range(min(ROWS_MAX, heads_per_key), 0, -1) if heads_per_key % rows == 0)
