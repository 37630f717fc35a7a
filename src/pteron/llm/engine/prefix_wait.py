"""Requests that wait while another request prefills the same prefix.

Once a prompt chunk is submitted, all later submissions find its rows in the KV cache. So a request that
begins with the same tokens waits until that part is submitted, and copies it instead of computing it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.llm.cached_sequence import shared_length
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.sequence_pool import SequencePool


@dataclass(frozen=True, slots=True, eq=False)
class _Prefix:
    """The first `count` tokens of a prompt that another request is prefilling."""

    reader: RunningRequest
    count: int

    @property
    def is_coming(self) -> bool:
        return not self.reader.reason and self.reader.submitted < self.count


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
        """Remove a job that starts or ends, if it waits here."""
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
        ids = job.request.ids[:-1]  # the last token is always read: its logits are needed
        readers = {request.model: request for request in running if not request.is_prefilled}
        coming = {model: shared_length(other.job.request.ids, ids) for model, other in readers.items()}
        source = self._pool.source_worth_waiting_for(ids, coming)
        return None if source is None else _Prefix(readers[source], coming[source])
