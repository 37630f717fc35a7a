"""A process that records and runs recipes, and may die of one without harm to the others."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from conformance.cache import FOLDER, records_of
from conformance.record import Case, Result, is_recorded, read_cases, sentence, write_cases
from conformance.run import run_case
from conformance.suites import SUITES


@dataclass(frozen=True, slots=True)
class Job:
    """A recipe to record, unless it is, and to run, beginning with case number `skip`."""

    suite: str
    recipe: str
    skip: int = 0
    is_run: bool = True  # or only recorded


def work(connection: Connection, number: int, adapter: str | None) -> None:
    """Answer jobs with ("recorded", names), a Result for each case, and None at the end."""
    (FOLDER / "log").mkdir(parents=True, exist_ok=True)
    with (FOLDER / "log" / f"worker-{number}.txt").open("w") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        while (job := connection.recv()) is not None:
            _do(job, connection.send, adapter)


def _record(job: Job) -> list[Case]:
    suite = SUITES[job.suite]
    try:
        return suite.record(job.recipe)
    except Exception as error:  # the recipe itself is at fault
        return [Case(job.recipe, outcome="export failed", cause=sentence(error))]


def _do(job: Job, send: Callable[[Any], None], adapter: str | None) -> None:
    folder = records_of(job.suite, job.recipe)
    if not is_recorded(folder):
        shutil.rmtree(folder, ignore_errors=True)
        write_cases(folder, _record(job))
    for place, case in enumerate(read_cases(folder) if job.is_run else ()):
        if place < job.skip:
            continue
        send(case.name)
        start = time.perf_counter()
        try:
            send(run_case(case, adapter))
        except Exception as error:  # a fault of Pteron's, or of what drives it: no sentence for the caller
            send(Result(case.name, "crashed", sentence(error), seconds=time.perf_counter() - start))
    send(None)
