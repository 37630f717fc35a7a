"""Arguments and stateful oracles of attention over KV caches, and the names of its operators."""

from __future__ import annotations

from typing import Any

from arguments import Symbol, tensor, weight
from int8_caches import floats_of, stored

from pteron.reference.attention import attention, rope, rope_hf, rope_interleaved, sdpa_with_cache
from pteron.reference.elementwise import rms_norm

CACHED, CUSTOM, PLAIN, UPDATE = (
    f"{name}.default" for name in ("sdpa_with_kv_cache", "custom_sdpa", "et_vk.sdpa", "update_cache")
)
OPTIONED = "pteron.attention.default"
NO_OPTIONS = (None,) * 4  # window, soft cap, sinks, slopes
CAPACITY = 23
# Prefill, decode, decode, a chunk, decode; then the last places of the cache.
DECODE = {"S": (5, 1, 1, 7, 1, 2), "p": (0, 5, 6, 7, 14, 21), "C": (5, 6, 7, 14, 15, 23)}
# Chunks of more queries than a tile holds, of fewer, of exactly one tile; then decode.
CHUNKS = {"S": (67, 9, 33, 32, 1), "p": (0, 67, 76, 109, 141)}


class CachedAttention:
    """The oracle of attention over caches, which it keeps from call to call."""

    def __init__(self) -> None:
        self.caches: list[Any] = []

    def __call__(self, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, *rest: Any) -> Any:
        self.caches = self.caches or [floats_of(k_cache), floats_of(v_cache)]
        return sdpa_with_cache(q, stored(k, k_cache), stored(v, v_cache), *self.caches, *rest)


# A chunk as long as a ring of CAPACITY rows allows beside a window of 6, then steps and chunks, five rounds.
RING_WINDOW = 6
_RING_STEPS = (18, 1, 1, 7, 17, 1, 18, 2, 3, 1, 18, 18, 1)
RING = {
    "S": _RING_STEPS,
    "p": tuple(sum(_RING_STEPS[:index]) for index in range(len(_RING_STEPS))),
}


class OptionedAttention:
    """The oracle of attention with options, which keeps its caches from call to call. Poison in them counts
    as zeros, which no query may see. `rows` are those of its caches if the operator's are rings."""

    def __init__(self, rows: int | None = None) -> None:
        self.caches: list[Any] = []
        self.rows = rows

    def __call__(self, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, *rest: Any) -> Any:
        given = (k_cache, v_cache)
        floats = (floats_of(cache) for cache in given)
        self.caches = self.caches or [cache if cache is None else self._empty(cache) for cache in floats]
        return attention(q, stored(k, k_cache), stored(v, v_cache), *self.caches, *rest)

    def _empty(self, cache: Any) -> Any:
        if self.rows is None:
            return cache.nan_to_num()
        return cache.new_zeros((cache.shape[0], self.rows, *cache.shape[2:]))


def cached(
    heads: int, key_heads: int, width: int, batch: int = 1, capacity: int = CAPACITY
) -> tuple[Any, ...]:
    """Queries, keys, values, caches and position of attention over caches."""
    new = tensor(batch, "S", key_heads, width)
    caches = (weight(batch, capacity, key_heads, width), weight(batch, capacity, key_heads, width))
    return tensor(batch, "S", heads, width), new, tensor(batch, "S", key_heads, width), *caches, Symbol("p")


MASKS: list[tuple[int | str, ...]] = [
    ("S", "T"),
    (1, "T"),
    (2, 1, "S", "T"),
    (1, 3, 1, "T"),
    (2, 3, "S", 1),
    (),
]
ROPE, ROPE_HF, ROPE_INTERLEAVED = (
    f"et_vk.apply_rotary_emb{form}.default" for form in ("", "_hf", "_interleaved")
)
POSITIONS = {"S": (5, 1, 1, 7, 3), "p": (0, 5, 6, 16, 1)}


class TurnedAttention:
    """The oracle: a rotation, then attention over caches, which it keeps from call to call."""

    def __init__(self, rows: int | None = None) -> None:
        self.attention = CachedAttention()
        self.optioned = OptionedAttention(rows)

    def __call__(self, q: Any, k: Any, v: Any, form: str, cosines: Any, sines: Any, *rest: Any) -> Any:
        start, end, k_cache, v_cache, position, mask, causal, scale = rest[:8]
        options, norms = rest[8:12], rest[12:]
        if norms[0] is not None:
            q, k = rms_norm(q, *norms[:2]), rms_norm(k, *norms[2:])
        if form == "neighbours":
            q, k = rope(q, k, cosines[start:end], sines[start:end])
        elif form == "halves":
            q, k = rope_hf(q, k, cosines, sines, start)
        else:
            q, k = rope_interleaved(q, cosines), rope_interleaved(k, cosines)
        if any(each is not None for each in options):
            return self.optioned(q, k, v, k_cache, v_cache, position, scale, *options, None)
        return self.attention(q, k, v, k_cache, v_cache, position, None, mask, None, causal, scale)
