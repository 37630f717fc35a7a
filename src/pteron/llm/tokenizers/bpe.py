"""Byte pair encoding: merges neighbouring symbols until no pair has a rank."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


def merge_pairs(symbols: Sequence[bytes], rank: Callable[[bytes], float | None]) -> list[bytes]:
    """Merge the pair with the smallest rank first, the leftmost among equals.

    The symbols form a doubly linked list, and candidate pairs wait in a heap; a candidate is dropped if one
    of its sides was merged before its turn.
    """
    parts: list[bytes | None] = list(symbols)
    before = list(range(-1, len(parts) - 1))
    after = [*range(1, len(parts)), -1]
    candidates: list[tuple[float, int, int, bytes]] = []

    def propose(left: int) -> None:
        right = after[left] if left >= 0 else -1
        if right < 0:
            return
        joined = (parts[left] or b"") + (parts[right] or b"")
        found = rank(joined)
        if found is not None:
            heapq.heappush(candidates, (found, left, right, joined))

    for left in range(len(parts) - 1):
        propose(left)
    while candidates:
        _, left, right, joined = heapq.heappop(candidates)
        if (
            parts[left] is None
            or after[left] != right
            or (parts[left] or b"") + (parts[right] or b"") != joined
        ):
            continue
        parts[left], parts[right] = joined, None
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        propose(before[left])
        propose(left)
    return [part for part in parts if part is not None]
