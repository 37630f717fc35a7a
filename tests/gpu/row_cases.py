"""Arguments and oracles of operators over rows of different sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from arguments import tensor, weight
from int8_caches import floats_of, stored

from pteron.families.layout.copy import copy_elements
from pteron.ops import Dispatch, Operand, op
from pteron.plan.advance import ADVANCE
from pteron.reference.attention import attend_steps_first, rope, rope_hf

PLACE, ANGLES, TURN = "pteron.locate_rows", "pteron.row_angles", "pteron.rope_rows"
ATTEND, TURNED = "pteron.attend_rows", "pteron.rope_attend_rows"
NO_OPTIONS = (None,) * 4  # window, soft cap, sinks, slopes
CAPACITY, SLOTS = 23, 7
# (position, slot) of rows: the first and the last position, slots in any order, an unused row (-1).
PLACES = np.array([[4, 3], [0, 0], [22, 6], [-1, -1], [11, 2], [1, 5]], np.int32)


class RowAttention:
    """The oracle: attention of each row alone, over caches that persist between calls. The result of an
    unused row is undefined. `rows` are those of its caches if the operator's are rings."""

    def __init__(self, rows: int | None = None) -> None:
        self.caches: list[Any] = []
        self.rows = rows

    def __call__(
        self, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, places: Any, context: int, *options: Any
    ) -> Any:
        scale, *changes, width = options
        given = (k_cache, v_cache) if v is not None else (k_cache,)
        if not self.caches:
            self.caches = [floats_of(cache) for cache in given]
            if self.rows is not None:
                self.caches = [cache[:, torch.arange(self.rows) % cache.shape[1]] for cache in self.caches]
        k, v = stored(k, k_cache), stored(v, v_cache)
        results = []
        for row, (position, slot) in enumerate(places.tolist()):
            if slot >= 0:
                for cache, fresh in zip(self.caches, (k, v), strict=False):
                    cache[slot, position] = fresh[0, row]
            position, slot = max(position, 0), max(slot, 0)  # an unused row sees the first cache's first key
            keys, *values = (cache[slot : slot + 1, : position + 1] for cache in self.caches)
            seen = values[0] if values else keys[..., :width]
            query = q[:, row : row + 1]
            results.append(attend_steps_first(query, keys, seen, None, scale, position, *changes))
        return torch.cat(results, 1)


class TurnedAttention:
    def __init__(self, rows: int | None = None) -> None:
        self.attention = RowAttention(rows)

    def __call__(self, q: Any, k: Any, v: Any, angles: Any, form: str, *rest: Any) -> Any:
        turned_q, turned_k = turned(q, k, angles, form)
        return self.attention(turned_q, turned_k, v, *rest, None)


def turned(q: Any, k: Any, angles: Any, form: str) -> Any:
    cosines, sines = angles.chunk(2, -1)
    return rope(q, k, cosines, sines) if form == "neighbours" else rope_hf(q, k, cosines, sines, 0)


def heads_of(rows: int, heads: int, key_heads: int, width: int) -> tuple[Any, ...]:
    return tuple(tensor(1, rows, count, width) for count in (heads, key_heads, key_heads))


def caches(key_heads: int, width: int, slots: int = SLOTS, capacity: int = CAPACITY) -> tuple[Any, ...]:
    return tuple(weight(slots, capacity, key_heads, width) for _ in range(2))


def places_of(slots: Any, tokens: Any, positions: Any) -> Any:
    known = [slot if 0 <= slot < 5 else -1 for slot in slots.tolist()]
    ids = [int(tokens[slot]) if slot >= 0 else 0 for slot in known]
    places = [[int(positions[slot]), slot] if slot >= 0 else [-1, -1] for slot in known]
    return torch.tensor([ids]), torch.tensor(places)


def angles_of(cosines: Any, sines: Any, places: Any) -> Any:
    at = places[:, 0].clamp(0, 30)
    return torch.cat([cosines[at], sines[at]], -1)


@op("test.advance", "words growths -> out", shape=lambda words, _: words.shape)
def advanced(words: Operand, growths: Operand, out: Operand) -> Iterator[Dispatch]:
    yield copy_elements(words, out)
    yield Dispatch(ADVANCE, growths=growths, words=out, groups=(growths.shape[0], 1, 1))


GROWTHS = np.array([[3, 1], [0, -2], [66, 2**31 - 1], *([index, index] for index in range(4, 66))])


def added(words: torch.Tensor, growths: torch.Tensor) -> torch.Tensor:
    """In 32 bits."""
    result = words.clone()
    result[growths[:, 0]] += growths[:, 1]
    return result.to(torch.int32)


WORDS = tensor(67, dtype="i32", low=-100, high=0), weight(*GROWTHS.shape, dtype="i32", values=GROWTHS)
