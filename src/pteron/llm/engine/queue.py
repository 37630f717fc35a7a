"""Requests that nobody has begun yet, in the order they came, so many at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from pteron.errors import DeviceError
from pteron.gpu.fork import new_lock
from pteron.llm.engine.job import Job
from pteron.llm.engine.request import Busy
from pteron.llm.reentrancy import non_reentrant


class RequestQueue:
    """The queue of an engine. A job that was cancelled counts no longer, whether or not it was taken out."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.accepted = 0
        self.deadline = inf  # of all that wait, the first
        self.open: set[Job] = set()  # those that wait, and those that were taken and have not ended
        self._jobs: deque[Job] = deque()
        self._lock = new_lock()
        self._refusal = ""

    def __len__(self) -> int:
        return sum(not job.is_cancelled for job in self._jobs.copy())

    def put(self, job: Job, patience: Callable[[], float]) -> None:
        """Let a job wait, or say to come back after as many seconds as `patience` tells."""
        with non_reentrant(self._lock):
            if self._refusal:
                raise DeviceError(self._refusal)
            if len(self._jobs) >= self.most and len(self) >= self.most:
                seconds = patience()
                raise Busy(
                    f"{self.most} requests wait, as many as may; come back in {seconds:.0f} s", seconds
                )
            job.number = self.accepted
            self.accepted += 1
            self.deadline = min(self.deadline, job.deadline)
            self.open.add(job)
            self._jobs.append(job)

    def take(self) -> Job | None:
        """The first, which waits no longer."""
        with non_reentrant(self._lock):
            return self._jobs.popleft() if self._jobs else None

    def leave(self, now: float) -> list[Job]:
        """Those that no longer wait: cancelled, or their time is up."""
        with non_reentrant(self._lock):
            return self._leave(now)

    def _leave(self, now: float) -> list[Job]:
        leaving = [job for job in self._jobs if job.reason_to_end(now)]
        if leaving:
            gone = set(leaving)
            self._jobs = deque(job for job in self._jobs if job not in gone)
        self.deadline = min((job.deadline for job in self._jobs), default=inf)
        return leaving

    def refuse(self, why: str) -> None:
        """Take no more, and say why; the first reason stays."""
        with non_reentrant(self._lock):
            self._refusal = self._refusal or why

    def empty(self) -> list[Job]:
        """All of them, which wait no longer."""
        with non_reentrant(self._lock):
            left, self._jobs = list(self._jobs), deque()
            return left
