"""Attention of rows that belong to different sequences: each sees its own cache, up to its own position.

`places` has (position, slot) of every row, on the GPU; the host only knows the number of keys of the longest
sequence. Caches are [slots, capacity, heads, width]. Positions and slots out of range are clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.families.attention.kernels import Attention
from pteron.families.attention.layouts import Decode, context_bucket
from pteron.ops import AnyInt, Dispatch, Operand, Target, require


@dataclass(frozen=True, slots=True)
class RowAttention(Attention):
    """Attention in which every row is a batch of one step."""

    places: Operand | None = None

    @classmethod
    def of(
        cls,
        rows: Operand,
        key_cache: Operand,
        value_cache: Operand,
        places: Operand,
        context: AnyInt,
        scale: float | None,
        out: Operand,
    ) -> RowAttention:
        """Attention of [..., heads, width] to at most `context` keys. A plan holds for a bucket of
        contexts."""
        check_rows(rows, key_cache, value_cache, places)
        capacity = key_cache.shape[1]
        require(1 <= context <= capacity, f"{context} keys, the caches hold {capacity}", key_cache)
        keys = min(context_bucket(context), capacity)
        shape = (places.shape[0], 1, *rows.shape[-2:])
        q, out = replace(rows, shape=shape), replace(out, shape=shape)
        return cls(q, key_cache, value_cache, out, keys, scale=scale, places=places)

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        if self.q.numel == 0:
            return iter(())
        if target.is_cpu or self._width % 4:
            return self._by_scores(target)
        layout = Decode.of(self._width, self.context, target)
        return self._by_decoding(layout, target) if layout else self._by_splits(target)

    def _contexts(self) -> dict[str, Any]:
        return {"use_contexts": "contexts_rows", "CACHES": self.k.shape[0]}

    def _places(self) -> dict[str, Any]:
        return {"places": self.places}

    @property
    def _keys(self) -> int:
        return int(self.context)


def check_rows(rows: Operand, key_cache: Operand, value_cache: Operand, places: Operand) -> None:
    """Check rows of queries or keys, [..., heads, width], against caches and places."""
    require(
        key_cache.rank == 4 and key_cache.shape == value_cache.shape,
        "caches are of one shape, of rank 4",
        key_cache,
        value_cache,
    )
    require(places.rank == 2 and places.shape[1] == 2, "places are [rows, 2]", places)
    slots, _, heads, width = key_cache.shape
    require(places.shape[0] <= slots, "there are no more rows than slots", places, key_cache)
    fits = rows.rank >= 2 and rows.shape[-1] == width and rows.shape[-2] % heads == 0
    fits = fits and rows.numel == places.shape[0] * rows.shape[-2] * width
    require(fits, "rows are heads of the caches' width, one row for each place", rows, key_cache, places)
