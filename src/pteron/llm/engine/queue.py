"""Queues of a scheduler: requests that wait to start or for a shared prefix, and prompts that wait for their
next chunk.

Once a prompt chunk is submitted, all later submissions find its rows in the KV cache. So a request that
begins with the same tokens waits until that part is submitted, and copies it instead of computing it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from pteron.errors import DeviceError, PteronError
from pteron.gpu.fork import new_lock
from pteron.llm.cache.pool import SequencePool
from pteron.llm.cache.sequence import shared_length
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest


class Busy(PteronError):  # noqa: N818  # as servers say it
    """The engine's queue is full; `seconds` is when to try again."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class RequestQueue:
    """Jobs that wait, first come first served, at most `most`. A cancelled job no longer counts."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.accepted = 0
        self.deadline = inf  # the earliest of all waiting jobs
        self.open: set[Job] = set()  # waiting jobs and started ones that have not ended
        self._jobs: deque[Job] = deque()
        self._lock = new_lock()
        self._refusal = ""

    def __len__(self) -> int:
        return sum(not job.is_cancelled for job in self._jobs.copy())

    def put(self, job: Job, retry_seconds: Callable[[], float]) -> None:
        """Add a job; Busy if the queue is full."""
        with self._lock:
            if self._refusal:
                raise DeviceError(self._refusal)
            if len(self._jobs) >= self.most and len(self) >= self.most:
                seconds = retry_seconds()
                raise Busy(
                    f"{self.most} requests wait, the most allowed; try again in {seconds:.0f} s", seconds
                )
            job.number = self.accepted
            self.accepted += 1
            self.deadline = min(self.deadline, job.deadline)
            self.open.add(job)
            self._jobs.append(job)

    def take(self) -> Job | None:
        with self._lock:
            return self._jobs.popleft() if self._jobs else None

    def expire(self, now: float) -> list[Job]:
        with self._lock:
            expired = {job: None for job in self._jobs if job.reason_to_end(now)}
            self._jobs = deque(job for job in self._jobs if job not in expired)
            self.deadline = min((job.deadline for job in self._jobs), default=inf)
            return list(expired)

    def refuse(self, reason: str) -> None:
        """Refuse all further jobs; the first reason stays."""
        with self._lock:
            self._refusal = self._refusal or reason

    def clear(self) -> list[Job]:
        with self._lock:
            removed, self._jobs = list(self._jobs), deque()
            return removed


class PrefillQueue:
    """Prompts that are being prefilled. Chunks alternate between new prompts and prompts that have started: a
    new request waits for one chunk of a long prompt, and a long prompt advances among many new requests."""

    def __init__(self) -> None:
        self._new: deque[RunningRequest] = deque()
        self._started: deque[RunningRequest] = deque()
        self._was_new = False  # the last one taken

    def __len__(self) -> int:
        return len(self._new) + len(self._started)

    def add(self, request: RunningRequest) -> None:
        """Add a request with no chunk submitted yet."""
        self._new.append(request)

    def put_back(self, request: RunningRequest) -> None:
        """Add a request that has more chunks."""
        self._started.append(request)

    def take(self) -> RunningRequest:
        self._was_new = bool(self._new) and not (self._was_new and self._started)
        return (self._new if self._was_new else self._started).popleft()

    def drop(self, request: RunningRequest) -> None:
        for requests in (self._new, self._started):
            with suppress(ValueError):
                requests.remove(request)


@dataclass(frozen=True, slots=True, eq=False)
class _Prefix:
    """The first `count` tokens of a prompt that another request is prefilling."""

    source: RunningRequest
    count: int

    @property
    def is_coming(self) -> bool:
        return not self.source.reason and self.source.submitted < self.count


class PrefixWaitlist:
    """Jobs that were taken from the queue but have not started, in queue order. Each job counts as one of the
    running requests, so that no later request takes its place."""

    def __init__(self, pool: SequencePool) -> None:
        self._pool = pool
        self._jobs: dict[Job, _Prefix | None] = {}  # None: the pool had no free sequence

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def add(self, job: Job) -> None:
        """Keep a job that could start but got no sequence."""
        self._jobs[job] = None

    def drop(self, job: Job) -> None:
        self._jobs.pop(job, None)

    def tokens_awaited(self, job: Job, running: Sequence[RunningRequest]) -> int:
        """How many prefix tokens a job has to wait for; 0: it can start. A job that waits is put on this
        list."""
        prefix = self._jobs.get(job)
        if prefix is None or not prefix.is_coming:
            prefix = self._find(job, running)
            if prefix is not None:
                self._jobs[job] = prefix
        return 0 if prefix is None else prefix.count

    def _find(self, job: Job, running: Sequence[RunningRequest]) -> _Prefix | None:
        """The prefix worth waiting for, if a running request still has to submit it."""
        ids = job.request.ids[:-1]  # the last token always runs: its logits are needed
        sources = {request.model: request for request in running if not request.is_prefilled}
        coming = {
            model: shared_length(other.job.request.ids, ids)
            for model, other in sources.items()
            if other.job.request.adapter == job.request.adapter
        }
        source = self._pool.source_worth_waiting_for(ids, coming, job.request.adapter)
        return None if source is None else _Prefix(sources[source], coming[source])
