"""Sequences of one model, lent to streams of text: each stream has one to itself while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ReferenceType, ref

from pteron.errors import DeviceError, InputError
from pteron.gpu.forking import new_lock
from pteron.llm.entered import once
from pteron.llm.model import LanguageModel, shared_length

SEQUENCES_MAX = 16


class Lease:
    """A sequence in use. It is given back by `close`, or when nobody holds the lease any more."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.user: object = None  # who holds the lease, as the model knows them
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@dataclass(slots=True, eq=False)
class _Place:
    model: LanguageModel
    lease: ReferenceType[Lease] | None = None

    @property
    def is_free(self) -> bool:
        lease = self.lease() if self.lease else None
        return lease is None or lease.is_closed


class Pool:
    """The sequences of a model. A stream gets the idle one whose cache holds most of its prompt; where all
    are in use, another is made."""

    def __init__(self, model: LanguageModel) -> None:
        self._places = [_Place(model)]
        self._lock = new_lock()
        self._closed = False

    def __len__(self) -> int:
        return len(self._places)

    def lease(self, ids: Sequence[int]) -> Lease:
        """A sequence for a stream that starts from these tokens."""
        with once(self._lock):
            if self._closed:
                raise DeviceError("the model is closed")
            free = [place for place in self._places if place.is_free]
            if not free:
                if len(self._places) >= SEQUENCES_MAX:
                    raise InputError(f"{SEQUENCES_MAX} streams are open; read one to its end, or close it")
                free = [_Place(self._places[0].model.sequence())]
                self._places += free
            best = max(free, key=lambda place: shared_length(place.model.tokens, ids))
            lease = Lease(best.model)
            best.lease = ref(lease)
            lease.user = best.model.claim()
            return lease

    def forget(self) -> None:
        """Drop what idle sequences have read, and all of them but the first; streams that are open go on
        undisturbed."""
        with once(self._lock):
            self._forget()

    def _forget(self) -> None:
        first, *others = self._places
        if first.is_free:
            first.model.reset()
        idle = [place for place in others if place.is_free]
        self._places = [place for place in self._places if place not in idle]  # first: none is lent closed
        for place in idle:
            place.model.close()

    def close(self) -> None:
        with once(self._lock):
            self._closed = True
