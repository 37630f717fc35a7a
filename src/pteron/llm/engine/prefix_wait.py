"""Requests whose turn has come, held back while another reads what they begin with.

A prompt's rows are in the cache for all that is submitted behind them. So whoever begins alike waits until
that part was submitted for one of them, and gets a copy of it instead of reading it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.llm.cached_sequence import shared_length
from pteron.llm.engine.job import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.sequence_pool import SequencePool


@dataclass(frozen=True, slots=True, eq=False)
class _Beginning:
    """So many tokens of a prompt, which is being read."""

    reader: RunningRequest
    count: int

    @property
    def is_coming(self) -> bool:
        return not self.reader.reason and self.reader.submitted < self.count


class PrefixWaitlist:
    """Jobs that were taken from the queue and are not begun, in its order. Each keeps its place among those
    that run: whoever comes later does not get it."""

    def __init__(self, pool: SequencePool) -> None:
        self._pool = pool
        self._jobs: dict[Job, _Beginning | None] = {}  # None: there was no sequence for it

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def keep(self, job: Job) -> None:
        """One that could begin, and has no sequence."""
        self._jobs[job] = None

    def drop(self, job: Job) -> None:
        """One that begins or ends, if it is here."""
        self._jobs.pop(job, None)

    def awaits(self, job: Job, tracks: Sequence[RunningRequest]) -> int:
        """How many tokens of its beginning a job waits for, which is here then; 0 where it need not wait."""
        beginning = self._jobs.get(job)
        if beginning is None or not beginning.is_coming:
            beginning = self._sought(job, tracks)
            if beginning is not None:
                self._jobs[job] = beginning
        return 0 if beginning is None else beginning.count

    def _sought(self, job: Job, tracks: Sequence[RunningRequest]) -> _Beginning | None:
        """The prompt that is worth waiting for: none where the reader has ended, or has come that far."""
        ids = job.request.ids[:-1]  # the last is read in any case
        readers = {track.model: track for track in tracks if not track.is_read}
        coming = {model: shared_length(track.job.request.ids, ids) for model, track in readers.items()}
        source = self._pool.awaited(ids, coming)
        return None if source is None else _Beginning(readers[source], coming[source])
