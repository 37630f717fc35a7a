"""Queues of a scheduler: requests that wait to start, and prompts that wait for their next chunk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf

from pteron.errors import DeviceError, PteronError
from pteron.gpu.fork import new_lock
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.reentrancy import non_reentrant


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
        with non_reentrant(self._lock):
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
        """Remove the first job."""
        with non_reentrant(self._lock):
            return self._jobs.popleft() if self._jobs else None

    def expire(self, now: float) -> list[Job]:
        """Remove the jobs that are cancelled or past their deadline."""
        with non_reentrant(self._lock):
            return self._expire(now)

    def _expire(self, now: float) -> list[Job]:
        expired = [job for job in self._jobs if job.reason_to_end(now)]
        if expired:
            removed = set(expired)
            self._jobs = deque(job for job in self._jobs if job not in removed)
        self.deadline = min((job.deadline for job in self._jobs), default=inf)
        return expired

    def refuse(self, reason: str) -> None:
        """Refuse all further jobs; the first reason stays."""
        with non_reentrant(self._lock):
            self._refusal = self._refusal or reason

    def clear(self) -> list[Job]:
        """Remove all jobs."""
        with non_reentrant(self._lock):
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
        """Add a request with nothing read yet."""
        self._new.append(request)

    def put_back(self, request: RunningRequest) -> None:
        """Add a request that has more chunks."""
        self._started.append(request)

    def take(self) -> RunningRequest:
        """Remove the next request."""
        self._was_new = bool(self._new) and not (self._was_new and self._started)
        return (self._new if self._was_new else self._started).popleft()

    def drop(self, request: RunningRequest) -> None:
        """Remove a request that ends, if it is queued."""
        for requests in (self._new, self._started):
            with suppress(ValueError):
                requests.remove(request)
