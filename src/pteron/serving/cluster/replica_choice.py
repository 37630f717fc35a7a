"""Which replica gets a request: its conversation and the replicas by name -> names in ranks, the best first.

The favourite of a conversation is the same for every door without a word between them: of all replicas, the
one whose name gives the greatest digest with it. Where replicas come and go, only conversations with those
move.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence


def favourite(session: str, names: Sequence[str]) -> str:
    """Whose conversation it is."""
    return max(names, key=lambda name: hashlib.sha256(f"{session}\n{name}".encode()).digest())


def ranks(
    session: str, names: Sequence[str], queued: Callable[[str], int | None], busy: int
) -> list[list[str]]:
    """The favourite first, then two others, of which Ray takes the less busy one. It is the other way round
    where the favourite has `busy` requests or more; how many it has may not be known (None). What belongs to
    no conversation, whose session is empty, goes to either of any two."""
    if not names:
        return []
    if not session:
        return [_pair(names)]
    first = favourite(session, names)
    others = [name for name in names if name != first]
    if not others:
        return [[first]]
    count = queued(first)
    is_full = count is not None and count >= busy
    return [_pair(others), [first]] if is_full else [[first], _pair(others)]


def _pair(names: Sequence[str]) -> list[str]:
    return random.sample(names, min(2, len(names)))
