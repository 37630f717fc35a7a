"""Run the suites and write docs/operators.md: scripts/conformance --help."""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import replace

from conformance.cache import (
    read_results,
    recorded_recipes,
    records_of,
    result_file,
    sources_now,
    write_results,
)
from conformance.record import FAILURES, Result, is_failure, is_recorded
from conformance.report import PAGE, write_page
from conformance.schedule import run_jobs
from conformance.suites import SUITES
from conformance.worker import Job
from pteron import Device


def main() -> int:
    options = _options()
    logging.disable(logging.WARNING)  # of PyTorch's
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that no process is left behind
    device = Device.open(options.adapter)
    adapter = device.name
    sources = sources_now()
    names = options.suite or list(SUITES)
    recipes = {name: recorded_recipes(name) if options.recorded else SUITES[name].recipes() for name in names}
    every = [Job(name, recipe) for name in names for recipe in recipes[name]]
    chosen = [job for job in every if re.search(options.filter, f"{job.suite}/{job.recipe}")]
    if options.record:
        chosen = [replace(job, is_run=False) for job in chosen]
        jobs = [job for job in chosen if not is_recorded(records_of(job.suite, job.recipe))]
    else:
        jobs = [job for job in chosen if _is_due(job, adapter, sources, options.rerun)]
    progress = _Progress(len(jobs), len(chosen))

    def finished(job: Job, results: list[Result]) -> None:
        if job.is_run:
            write_results(result_file(adapter, job.suite, job.recipe), job.recipe, sources, results)
        progress.add(job, results)

    try:
        run_jobs(jobs, options.jobs, options.limit, options.adapter, finished)
    except KeyboardInterrupt:
        print("interrupted; what is done is kept, and the same command goes on from here")
        return 130
    if options.report or (len(chosen) == len(every) and recipes.keys() == SUITES.keys()):
        write_page(adapter, device.adapter.driver)
        print(f"wrote {PAGE}")
    return _summary(chosen, adapter)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument(
        "--suite", action="append", choices=list(SUITES), help="this suite only; may be repeated"
    )
    parser.add_argument("--filter", default="", metavar="REGEX", help="recipes whose suite/name matches")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default 2)")
    parser.add_argument("--adapter", help="part of an adapter's name, as `pteron info` shows it")
    parser.add_argument("--limit", type=float, default=900, metavar="S", help="seconds a case may take")
    parser.add_argument(
        "--rerun",
        choices=("changed", "failed", "all"),
        default="changed",
        help="what has results is run again if Pteron changed since (default), if it failed, or always",
    )
    parser.add_argument(
        "--record", action="store_true", help="export what is not exported yet, and run nothing"
    )
    parser.add_argument(
        "--report", action="store_true", help="write docs/operators.md after a part of the suites, too"
    )
    parser.add_argument(
        "--recorded", action="store_true", help="run what is exported already, and nothing else"
    )
    return parser.parse_args()


def _is_due(job: Job, adapter: str, sources: str, rerun: str) -> bool:
    kept = read_results(result_file(adapter, job.suite, job.recipe))
    if kept is None or rerun == "all":
        return True
    made_by, results = kept
    if rerun == "failed":
        return any(result.outcome in FAILURES for result in results)
    return made_by != sources


class _Progress:
    """Prints failures, and every 30 seconds the counts and the time left."""

    def __init__(self, count: int, chosen: int) -> None:
        self._count = count
        self._done = 0
        self._outcomes: Counter[str] = Counter()
        self._start = self._shown = time.monotonic()
        print(f"{count} recipes to run, {chosen - count} are done", flush=True)

    def add(self, job: Job, results: list[Result]) -> None:
        self._done += 1
        self._outcomes.update(result.outcome for result in results)
        for result in results:
            if result.outcome in FAILURES:
                print(f"{result.outcome}: {job.suite}/{result.name}: {result.cause}", flush=True)
        now = time.monotonic()
        if now - self._shown > 30:
            self._shown = now
            left = (now - self._start) / self._done * (self._count - self._done)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.most_common())
            done = f"{self._done}/{self._count} recipes; cases: {counts}"
            print(f"{done}; {left / 60:.0f} min left", flush=True)


def _summary(jobs: list[Job], adapter: str) -> int:
    """Counts by suite; the exit status is 1 where a case failed that should pass."""
    outcomes: dict[str, Counter[str]] = {}
    failed = 0
    for job in jobs:
        kept = read_results(result_file(adapter, job.suite, job.recipe))
        for result in kept[1] if kept else ():
            outcomes.setdefault(job.suite, Counter())[result.outcome] += 1
            failed += is_failure(job.suite, result)
    for suite, counts in outcomes.items():
        print(f"{suite}: {', '.join(f'{count} {outcome}' for outcome, count in counts.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
