"""The pool of a model's sequences. Each generation leases a sequence, which has its own KV cache.

The number of sequences is bounded. An idle sequence keeps its cache until the memory is needed; the least
recently used one is reused first. A prefix that is in the cache of any sequence is not computed again: the
generation gets that sequence, or a copy of that part of its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from threading import Event, Thread, main_thread
from time import monotonic
from weakref import ReferenceType, ref

from pteron.errors import DeviceError, InputError, OutOfMemory, PteronError
from pteron.gpu.fork import new_lock
from pteron.llm.arguments import SEQUENCES_MAX, integer
from pteron.llm.cache.sequence import CachedRows
from pteron.llm.engine.batched_model import BatchedModel
from pteron.llm.model import LanguageModel

COPIED_MIN = 64  # tokens: the prefill of a shorter prefix is as fast as its copy
PAUSE_AWAITED = 1.0  # seconds: where generations leave no pause, each plan ahead is made between them
_times = count(1)  # a logical clock; `next` is atomic


class Lease:
    """Keeps a sequence in use until `close`, or until the lease is garbage-collected."""

    def __init__(self, entry: _Entry) -> None:
        self.model = entry.model
        self.user: object = None  # the claim on the model (CachedSequence.claim)
        self.is_closed = False
        self._entry = entry

    def close(self) -> None:
        if not self.is_closed:
            self._entry.used = next(_times)
        self.is_closed = True


@dataclass(slots=True, eq=False)
class _Entry:
    model: LanguageModel
    lease: ReferenceType[Lease] | None = None
    used: int = 0  # last, by `_times`

    @property
    def is_free(self) -> bool:
        lease = self.lease() if self.lease else None
        return lease is None or lease.is_closed


class SequencePool:
    """At most `sequences` sequences of a model, whose caches take at most `cache_bytes` of GPU memory."""

    def __init__(
        self, model: LanguageModel, sequences: int | None = None, cache_bytes: int | None = None
    ) -> None:
        self.sequences_max = _sequences_max(model.sequence_bytes, sequences, cache_bytes)
        self._room = self.sequences_max  # lowered when the GPU has no memory for more
        self._entries = [_Entry(model)]
        self.batched: BatchedModel | None = None  # made when sequences first step as a batch
        self._lock = new_lock()
        self._closed = False
        self._closing = Event()
        self._warms = False

    def warm(self) -> None:
        """Make the plans of later generations ahead, on a thread of its own that waits for pauses, and those
        of a batch once there is one."""
        self._warms = True
        self._warm(self._entries[0].model.warm)

    @property
    def live(self) -> int:
        return len(self._entries)

    @property
    def idle(self) -> int:
        """The number of sequences not in use."""
        return sum(entry.is_free for entry in list(self._entries))

    @property
    def bytes(self) -> int:
        """GPU memory of all caches, including empty slots of the batch."""
        entries, batched = self._entries, self.batched
        count = len(entries)
        if batched is not None:
            count = batched.slots.count + sum(batched.slot_of(entry.model) is None for entry in entries)
        return count * entries[0].model.sequence_bytes

    def lease(self, ids: Sequence[int], adapter: str | None = None) -> Lease:
        """Lease a sequence for a generation from these tokens with an adapter. Its cache holds the longest
        cached prefix of `ids`, which is copied from another sequence if that is worth it."""
        with self._lock:
            entry, source = self._choose(ids, adapter)
            lease = _lease(entry, adapter)
            if source is not None:
                lease.model.copy(source.model, ids, lease.user)
            return lease

    def source_worth_waiting_for(
        self, ids: Sequence[int], coming: Mapping[LanguageModel, int], adapter: str | None = None
    ) -> LanguageModel | None:
        """The sequence in use whose prefix of `ids` is worth waiting for, or None. `coming` has the length of
        the prefix that each sequence will hold soon. Waiting is not worth it if another sequence already
        holds nearly as much."""
        best = max(coming, key=lambda model: coming[model], default=None)
        if best is None or coming[best] < COPIED_MIN or best.row_layout is None:
            return None
        with self._lock:
            shared = {entry.model: entry.model.cached_prefix(ids, adapter) for entry in self._entries}
        settled = max((count for model, count in shared.items() if model not in coming), default=0)
        is_worth_it = coming[best] - settled >= COPIED_MIN and coming[best] > max(shared.values())
        return best if is_worth_it else None

    def rows(self, ids: Sequence[int] | None = None) -> CachedRows:
        """The longest cached prefix of `ids` and its cache rows; without `ids`, all tokens and rows of the
        sequence that was used last."""
        with self._lock:
            return self._longest(ids).model.rows(ids)

    def restore(self, cached: CachedRows) -> None:
        """Load tokens and their cache rows into an idle sequence."""
        with self._lock:
            entry = self._entry_of(cached.tokens)
            if entry is not None:
                lease = _lease(entry)
                lease.model.restore(cached, lease.user)
                lease.close()

    def gather(self, models: Sequence[LanguageModel]) -> BatchedModel:
        """Move sequences into the slots of a batch: the given ones, which are in use, and idle ones too if
        the batch has a slot for every sequence."""
        with self._lock:
            self._check_open()
            if self.batched is None:
                self.batched = BatchedModel.allocate(self._entries[0].model, self.sequences_max)
                if self._warms:
                    self._warm(self.batched.warm)
            idle = [entry.model for entry in self._entries if entry.is_free]
            for model in (*models, *(idle if self.batched.slots.count >= self.sequences_max else ())):
                self.batched.move_into_slot(model)
            return self.batched

    def clear(self) -> None:
        """Clear the first sequence and free all other idle ones. Open generations are not affected."""
        with self._lock:
            first, *others = self._entries
            if first.is_free:
                first.model.reset()
            idle = [entry for entry in others if entry.is_free]
            # Removed before they are closed, so that a closed sequence cannot be leased.
            self._entries = [entry for entry in self._entries if entry not in idle]
            self._room = self.sequences_max
            for entry in idle:
                entry.model.close()

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            self._closed = True
            if self.batched is not None:
                self.batched.close()

    def _warm(self, make: Callable[[Callable[[], bool]], None]) -> None:
        def run() -> None:
            with suppress(PteronError):  # a call that needs the plan raises it
                make(self._has_time)

        Thread(target=run, name="plans made ahead").start()

    def _has_time(self) -> bool:
        """Wait for a moment without generations, for a second at most. False once the pool is closed or the
        process ends."""
        end = monotonic() + PAUSE_AWAITED
        while not self._closing.wait(0.02) and self.idle < self.live and monotonic() < end:
            pass
        return not self._closing.is_set() and main_thread().is_alive()

    # The choice of a sequence -------------------------------------------------------------------

    def _choose(self, ids: Sequence[int], adapter: str | None) -> tuple[_Entry, _Entry | None]:
        """A free sequence for a prompt, and the sequence to copy its prefix from, if any."""
        self._check_open()
        shared = {entry: entry.model.cached_prefix(ids, adapter) for entry in self._entries}
        free = [entry for entry in self._entries if entry.is_free]
        source = max(self._entries, key=lambda entry: shared[entry])
        can_copy = source.model.row_layout is not None
        if free:
            nearest = max(free, key=lambda entry: (shared[entry], entry.used))
            if not self._is_worth_keeping(nearest, shared[nearest], can_copy=can_copy) and not (
                can_copy and _is_worth_a_copy(source, nearest, shared)
            ):
                return nearest, None
        entry = self._empty_or_oldest(free)
        return entry, source if can_copy and _is_worth_a_copy(source, entry, shared) else None

    def _longest(self, ids: Sequence[int] | None) -> _Entry:
        """The sequence without adapter that holds the longest prefix of `ids`; without `ids`, the one used
        last."""
        self._check_open()
        if ids is None:
            shared = {
                entry: int(entry.model.certain > 0 and entry.model.adapter is None) for entry in self._entries
            }
        else:
            shared = {entry: entry.model.cached_prefix(ids) for entry in self._entries}
        best = max(self._entries, key=lambda entry: (shared[entry], entry.used))
        if not shared[best]:
            what = "nothing" if ids is None else "nothing of this text"
            raise InputError(f"the model has read {what}, so there is no cache to save")
        return best

    def _entry_of(self, tokens: Sequence[int]) -> _Entry | None:
        """A free sequence for restored tokens; None if a sequence holds them already."""
        self._check_open()
        shared = {entry: entry.model.cached_prefix(tokens) for entry in self._entries}
        there = [entry for entry in self._entries if shared[entry] == len(tokens)]
        if there:
            there[0].used = next(_times)
            return None
        free = [entry for entry in self._entries if entry.is_free]
        begun = [entry for entry in free if shared[entry] and shared[entry] == entry.model.certain]
        return begun[0] if begun else self._empty_or_oldest(free)

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("the model is closed")

    def _is_worth_keeping(self, entry: _Entry, shared: int, *, can_copy: bool) -> bool:
        """Whether a prompt that shares `shared` tokens with a sequence should leave it as it is: overwriting
        would lose many more tokens, and the shared prefix can be copied or is short."""
        lost = entry.model.certain - shared
        return (lost >= COPIED_MIN or lost > 2 * shared) and (can_copy or shared < COPIED_MIN)

    def _empty_or_oldest(self, free: Sequence[_Entry]) -> _Entry:
        """An empty sequence if there can be one, else the least recently used one."""
        empty = [entry for entry in free if not entry.model.certain]
        if empty:
            return empty[0]
        if len(self._entries) < (self._room if free else self.sequences_max):
            try:
                entry = _Entry(self._entries[0].model.sequence())
                self._entries = [*self._entries, entry]
                return entry
            except OutOfMemory as error:
                self._room = count = len(self._entries)
                if not free:
                    raise OutOfMemory(
                        f"{count} generations are open, and the device has no memory for the "
                        f"{self._entries[0].model.sequence_bytes:,} bytes of one more; read one to its end, "
                        f"or close it ({error})"
                    ) from error
        if not free:
            raise InputError(f"{self.sequences_max} generations are open; read one to its end, or close it")
        return min(free, key=lambda entry: entry.used)


def _sequences_max(sequence_bytes: int, sequences: int | None, cache_bytes: int | None) -> int:
    """The maximum number of sequences: by default SEQUENCES_MAX, or the number that fits into
    `cache_bytes`."""
    if sequences is not None and (sequences := integer("sequences", sequences)) < 1:
        raise InputError(f"sequences must be at least 1, not {sequences}")
    if cache_bytes is None:
        return SEQUENCES_MAX if sequences is None else sequences
    if (cache_bytes := integer("cache_bytes", cache_bytes)) < sequence_bytes:
        raise InputError(
            f"cache_bytes={cache_bytes:,} is too small: the cache of one sequence takes "
            f"{sequence_bytes:,} bytes"
        )
    affordable = cache_bytes // sequence_bytes if sequence_bytes else SEQUENCES_MAX
    return affordable if sequences is None else min(sequences, affordable)


def _lease(entry: _Entry, adapter: str | None = None) -> Lease:
    lease = Lease(entry)
    entry.lease = ref(lease)
    entry.used = next(_times)
    lease.user = entry.model.claim()
    entry.model.use_adapter(adapter)
    return lease


def _is_worth_a_copy(source: _Entry, entry: _Entry, shared: Mapping[_Entry, int]) -> bool:
    """Whether a copy from `source` to `entry` is worth it: it holds a much longer prefix."""
    return shared[source] - shared.get(entry, 0) >= COPIED_MIN
