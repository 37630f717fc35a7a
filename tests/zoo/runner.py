"""Entries, each measured in a process of its own -> results, kept as JSON lines. The same command continues
where it was stopped."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Generic, TypeVar

from conformance.cache import sources_now

from zoo.result import Result
from zoo.worker import work

ROOT = Path(__file__).parents[2]
WALL_PER_CPU = 10  # a shared machine may be slow

R = TypeVar("R", bound=Result)


def add_options(parser: argparse.ArgumentParser, folder: str) -> None:
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default 2)")
    parser.add_argument("--limit", type=int, default=300, metavar="S", help="processor seconds of each (300)")
    parser.add_argument("--memory", type=float, default=8, metavar="GB", help="of each process (default 8)")
    parser.add_argument(
        "--rerun",
        choices=("none", "failed", "partial", "all"),
        default="none",
        help="run again: none that has a result (default), what is not right, what has operators on the host "
        "too, or all",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / folder, help="of the results")
    parser.add_argument("--report", action="store_true", help="write the page after a part, too")


@dataclass(frozen=True)
class Runner(Generic[R]):
    """`measure` makes the result of a name, `kind` is its class; `preload` is imported once, before processes
    are forked."""

    measure: Callable[[str], R]
    kind: type[R]
    preload: str
    options: argparse.Namespace
    file_name: str = "results.jsonl"

    @property
    def file(self) -> Path:
        return Path(self.options.folder) / self.file_name

    @cached_property
    def _context(self) -> ForkServerContext:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([self.preload])  # imports take longer than most models
        return context

    def read_results(self) -> dict[str, R]:
        """The last result of each name."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {record["name"]: self.kind(**record) for record in map(json.loads, lines)}

    def run(self, names: Sequence[str]) -> None:
        """Measure those that have no result, or that `--rerun` names."""
        self.options.folder.mkdir(parents=True, exist_ok=True)
        results = self.read_results()
        due = [name for name in names if self._is_due(results.get(name))]
        print(f"{len(due)} to run, {len(names) - len(due)} are done", flush=True)
        with ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self._keep, due))

    def _is_due(self, result: R | None) -> bool:
        rerun = self.options.rerun
        if result is None or rerun == "all":
            return True
        if rerun == "partial":
            return not result.is_whole
        return bool(rerun == "failed" and result.outcome != "right")

    def _keep(self, name: str) -> None:
        result = self._measure(name)
        result.sources = sources_now()
        with self.file.open("a") as lines:
            lines.write(json.dumps(result.as_dict()) + "\n")
        print(_line(result), flush=True)

    def _measure(self, name: str) -> R:
        """Measure in a process; a process that fails becomes a result."""
        ours, theirs = self._context.Pipe(duplex=False)
        file_name = re.sub(r"[^\w.-]", "_", name)
        limit, log = self.options.limit, self.options.folder / f"{file_name}.log"
        arguments = (self.measure, name, theirs, limit, self.options.memory, log)
        process = self._context.Process(target=work, args=arguments)
        process.start()
        theirs.close()
        try:
            if ours.poll(limit * WALL_PER_CPU):
                return self.kind(**ours.recv())
        except EOFError:
            process.join()
            if process.exitcode not in (-signal.SIGXCPU, -signal.SIGKILL):
                return self.kind(name, "crashed", _last_line(log))
        finally:
            process.kill()
            process.join()
            ours.close()
        return self.kind(name, "timed out", f"not done after {limit} s", compile_s=limit)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "the process ended without a message"


def _line(result: Result) -> str:
    where = f"{result.gpu} on the GPU in {result.delegates}, {result.host} on the host"
    errors = f"error {result.error or 0:.1e}, eager {result.eager or 0:.1e}"
    told = result.reason or f"{where}; {errors}"
    return f"{result.name}: {result.outcome}, {result.compile_s:.0f} s: {told}"
