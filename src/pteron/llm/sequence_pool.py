"""Sequences of one model, lent to streams of text: each stream has one to itself while it lasts.

How many there may be is bounded. One that nobody uses keeps what it has read until its memory is needed; then
the one that was used least recently is given away first. What a text begins with and any of them has read is
not read again: the stream gets that sequence, or a copy of that part of its cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError, InputError, OutOfMemory
from pteron.gpu.fork import new_lock
from pteron.llm.arguments import SEQUENCES_MAX, integer
from pteron.llm.batched_model import BatchedModel
from pteron.llm.cached_sequence import Read
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import non_reentrant

COPIED_MIN = 64  # tokens: fewer are read as quickly as a copy is made, and are no loss
_times = count(1)  # orders what happens; asking for the next is one step, whichever thread does


class Lease:
    """A sequence in use. It is given back by `close`, or when nobody holds the lease any more."""

    def __init__(self, place: _Place) -> None:
        self.model = place.model
        self.user: object = None  # who holds the lease, as the model knows them
        self.is_closed = False
        self._place = place

    def close(self) -> None:
        if not self.is_closed:
            self._place.used = next(_times)
        self.is_closed = True


@dataclass(slots=True, eq=False)
class _Place:
    model: LanguageModel
    lease: ReferenceType[Lease] | None = None
    used: int = 0  # when it last was

    @property
    def is_free(self) -> bool:
        lease = self.lease() if self.lease else None
        return lease is None or lease.is_closed


class SequencePool:
    """The sequences of a model: at most `sequences` of them, whose caches take at most `cache_bytes`."""

    def __init__(
        self, model: LanguageModel, sequences: int | None = None, cache_bytes: int | None = None
    ) -> None:
        self.bound = bound(model.sequence_bytes, sequences, cache_bytes)
        self._room = self.bound  # fewer once the GPU had no memory for more
        self._places = [_Place(model)]
        self.batched: BatchedModel | None = None  # what steps all sequences together, once somebody does
        self._lock = new_lock()
        self._closed = False

    @property
    def live(self) -> int:
        """Sequences that there are."""
        return len(self._places)

    @property
    def idle(self) -> int:
        """Those of them that nobody uses."""
        return sum(place.is_free for place in list(self._places))

    @property
    def bytes(self) -> int:
        """GPU memory of all their caches, and of those that slots are kept ready for."""
        places, batched = self._places, self.batched
        count = len(places)
        if batched is not None:
            count = batched.slots.count + sum(batched.slot_of(place.model) is None for place in places)
        return count * places[0].model.sequence_bytes

    def lease(self, ids: Sequence[int]) -> Lease:
        """A sequence for a stream that starts from these tokens; its cache holds what any other's does of
        them, where that is worth it."""
        with non_reentrant(self._lock):
            place, source = self._choose(ids)
            lease = _lend(place)
            if source is not None:
                lease.model.copy(source.model, ids, lease.user)
            return lease

    def awaited(self, ids: Sequence[int], coming: Mapping[LanguageModel, int]) -> LanguageModel | None:
        """Of sequences in use, of which each will hold so much of a text before long, the one whose part is
        worth waiting for: no other holds nearly as much, and not all of it is there."""
        best = max(coming, key=lambda model: coming[model], default=None)
        if best is None or coming[best] < COPIED_MIN or best.row_bytes is None:
            return None
        with non_reentrant(self._lock):
            held = {place.model: place.model.holds(ids) for place in self._places}
        settled = max((count for model, count in held.items() if model not in coming), default=0)
        is_worth_it = coming[best] - settled >= COPIED_MIN and coming[best] > max(held.values())
        return best if is_worth_it else None

    def rows(self, ids: Sequence[int] | None = None) -> Read:
        """As much of a text as any sequence has read, and what it left in its caches; of no text in
        particular, all that the one used last has read."""
        with non_reentrant(self._lock):
            return self._longest(ids).model.rows(ids)

    def put(self, tokens: Sequence[int], rows: Sequence[npt.NDArray[np.uint8]]) -> None:
        """Let an idle sequence hold tokens, with what they have left in another's caches."""
        with non_reentrant(self._lock):
            place = self._place_of(tokens)
            if place is not None:
                lease = _lend(place)
                lease.model.put(tokens, rows, lease.user)
                lease.close()

    def gather(self, models: Sequence[LanguageModel]) -> BatchedModel:
        """Have sequences lie in slots, where they can step together: those that are given, which are in use,
        and where there are slots for all also those that nobody uses."""
        with non_reentrant(self._lock):
            self._check_open()
            if self.batched is None:
                self.batched = BatchedModel.fitting(self._places[0].model, self.bound)
            idle = [place.model for place in self._places if place.is_free]
            for model in (*models, *(idle if self.batched.slots.count >= self.bound else ())):
                self.batched.house(model)
            return self.batched

    def forget(self) -> None:
        """Drop what idle sequences have read, and all of them but the first; streams that are open go on
        undisturbed."""
        with non_reentrant(self._lock):
            self._forget()

    def _forget(self) -> None:
        first, *others = self._places
        if first.is_free:
            first.model.reset()
        idle = [place for place in others if place.is_free]
        self._places = [place for place in self._places if place not in idle]  # first: none is lent closed
        self._room = self.bound
        for place in idle:
            place.model.close()

    def close(self) -> None:
        with non_reentrant(self._lock):
            self._closed = True
            if self.batched is not None:
                self.batched.close()

    # Which one ----------------------------------------------------------------------------------

    def _choose(self, ids: Sequence[int]) -> tuple[_Place, _Place | None]:
        """A free sequence for a text, and the one that the beginning of its cache is to be copied from."""
        self._check_open()
        held = {place: place.model.holds(ids) for place in self._places}
        free = [place for place in self._places if place.is_free]
        source = max(self._places, key=lambda place: held[place])
        can_copy = source.model.row_bytes is not None
        if free:
            nearest = max(free, key=lambda place: (held[place], place.used))
            if not self._is_kept(nearest, held[nearest], can_copy=can_copy) and not (
                can_copy and _is_much_more(source, nearest, held)
            ):
                return nearest, None
        place = self._vacant(free)
        return place, source if can_copy and _is_much_more(source, place, held) else None

    def _longest(self, ids: Sequence[int] | None) -> _Place:
        """The sequence that holds most of a text, or was used last."""
        self._check_open()
        held = {
            place: place.model.certain if ids is None else place.model.holds(ids) for place in self._places
        }
        best = max(
            self._places, key=lambda place: (held[place] if ids is not None else held[place] > 0, place.used)
        )
        if not held[best]:
            what = "nothing" if ids is None else "nothing of this text"
            raise InputError(f"the model has read {what}, so there is no cache to save")
        return best

    def _place_of(self, tokens: Sequence[int]) -> _Place | None:
        """A free sequence for tokens that were read before; None where one holds them already."""
        self._check_open()
        held = {place: place.model.holds(tokens) for place in self._places}
        there = [place for place in self._places if held[place] == len(tokens)]
        if there:
            there[0].used = next(_times)
            return None
        free = [place for place in self._places if place.is_free]
        begun = [place for place in free if held[place] and held[place] == place.model.certain]
        return begun[0] if begun else self._vacant(free)

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("the model is closed")

    def _is_kept(self, place: _Place, held: int, *, can_copy: bool) -> bool:
        """Whether a text that a sequence holds so much of leaves it alone: it would overwrite far more, and
        can have a copy or does well without."""
        lost = place.model.certain - held
        return (lost >= COPIED_MIN or lost > 2 * held) and (can_copy or held < COPIED_MIN)

    def _vacant(self, free: Sequence[_Place]) -> _Place:
        """A sequence that holds nothing, where there can be one; else the one used least recently."""
        empty = [place for place in free if not place.model.certain]
        if empty:
            return empty[0]
        if len(self._places) < (self._room if free else self.bound):
            try:
                return self._made()
            except OutOfMemory as error:
                self._room = len(self._places)
                if not free:
                    raise self._refused(error) from error
        if not free:
            raise InputError(f"{self.bound} streams are open; read one to its end, or close it")
        return min(free, key=lambda place: place.used)

    def _made(self) -> _Place:
        place = _Place(self._places[0].model.sequence())
        self._places = [*self._places, place]
        return place

    def _refused(self, error: OutOfMemory) -> OutOfMemory:
        size = self._places[0].model.sequence_bytes
        return OutOfMemory(
            f"{len(self._places)} streams are open, and the device has no room for the {size:,} bytes of one "
            f"more; read one to its end, or close it ({error})"
        )


def bound(sequence_bytes: int, sequences: int | None, cache_bytes: int | None) -> int:
    """How many sequences there may be; by default SEQUENCES_MAX, or as many as `cache_bytes` are enough
    for."""
    if sequences is not None and (sequences := integer("sequences", sequences)) < 1:
        raise InputError(f"sequences must be at least 1, not {sequences}")
    if cache_bytes is None:
        return SEQUENCES_MAX if sequences is None else sequences
    if (cache_bytes := integer("cache_bytes", cache_bytes)) < sequence_bytes:
        raise InputError(
            f"cache_bytes={cache_bytes:,} is too little: a sequence's cache takes {sequence_bytes:,} bytes"
        )
    affordable = cache_bytes // sequence_bytes if sequence_bytes else SEQUENCES_MAX
    return affordable if sequences is None else min(sequences, affordable)


def _lend(place: _Place) -> Lease:
    """Let a sequence have a user."""
    lease = Lease(place)
    place.lease = ref(lease)
    place.used = next(_times)
    lease.user = place.model.claim()
    return lease


def _is_much_more(source: _Place, place: _Place, held: Mapping[_Place, int]) -> bool:
    """Whether one sequence holds so much more of a text than another that it is worth a copy."""
    return held[source] - held.get(place, 0) >= COPIED_MIN
