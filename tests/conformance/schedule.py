"""Jobs over processes: results as they come, whatever becomes of the processes."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from conformance.record import Result
from conformance.worker import Job, work

JOBS_PER_WORKER = 150  # exporting leaks memory

Finished = Callable[[Job, list[Result]], None]


class _Worker:
    """A process, the job it has, and what it has answered."""

    def __init__(self, number: int, adapter: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, number, adapter), daemon=True)
        self.process.start()
        theirs.close()
        self.number = number
        self.jobs = 0
        self.job: Job | None = None
        self.results: list[Result] = []
        self.current = ""  # the case that runs, or "" while the recipe is recorded
        self.since = 0.0
        self.is_gone = False

    def give(self, job: Job, results: list[Result]) -> None:
        self.job, self.results, self.current, self.since = job, results, "", time.monotonic()
        self.jobs += 1
        self.connection.send(job)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_jobs(
    jobs: Iterable[Job], processes: int, limit_s: float, adapter: str | None, finished: Finished
) -> None:
    """Do all jobs; `finished` gets each with its results. Recording, and each case, may take `limit_s`."""
    waiting = deque((job, list[Result]()) for job in jobs)
    workers: list[_Worker] = []
    try:
        numbers = list(range(processes))
        while waiting or any(worker.job for worker in workers):
            for worker in [w for w in workers if w.job is None and w.jobs >= JOBS_PER_WORKER]:
                numbers.append(worker.number)
                worker.end()
                workers.remove(worker)
            while numbers and waiting:
                workers.append(_Worker(numbers.pop(), adapter))
            for worker in workers:
                if worker.job is None and waiting:
                    worker.give(*waiting.popleft())
            _listen(workers, finished)
            for worker in list(workers):
                fault = _fault(worker, limit_s)
                if fault:
                    numbers.append(worker.number)
                    worker.end()
                    workers.remove(worker)
                    _go_on(worker, fault, waiting, finished)
    finally:
        for worker in workers:
            worker.end()


def _listen(workers: list[_Worker], finished: Finished) -> None:
    """Take what workers say within a second."""
    by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in workers if worker.job}
    for ready in wait(list(by_connection), timeout=1.0):
        worker = by_connection[ready]
        assert isinstance(ready, Connection)
        try:
            message = ready.recv()
        except (EOFError, OSError):
            worker.is_gone = True
            continue
        worker.since = time.monotonic()
        if isinstance(message, str):
            worker.current = message
        elif isinstance(message, Result):
            worker.results.append(message)
        elif worker.job is not None:
            finished(worker.job, worker.results)
            worker.job = None


def _fault(worker: _Worker, limit_s: float) -> str:
    """Why a worker must be replaced, or ""."""
    if worker.job is None:
        return ""
    if worker.is_gone:
        return "crashed"
    return "timed out" if time.monotonic() - worker.since > limit_s else ""


def _go_on(worker: _Worker, fault: str, waiting: deque[tuple[Job, list[Result]]], finished: Finished) -> None:
    """The case that a worker died of has its result; those behind it are given to another."""
    assert worker.job is not None
    during = "" if worker.current else "while it was exported"
    result = Result(worker.current or worker.job.recipe, fault, during)
    results = [*worker.results, result]
    if worker.current:
        waiting.appendleft((replace(worker.job, skip=len(results)), results))
    else:
        finished(worker.job, results)
