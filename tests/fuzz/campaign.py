"""Fuzz one target for some time: start workers one after the other, and record those that die or hang."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import ROOT
from fuzz.replay import death, environment
from fuzz.target import Fault, Target
from fuzz.worker import save

_PAUSE = 0.2
_START_SECONDS = 120  # until the first input is tried
_SILENCE_SECONDS = 60  # beyond an input's own time: the machine may be busy


@dataclass
class Report:
    """The results of one target."""

    target: str
    seconds: float = 0.0
    executions: int = 0
    lines: int = 0
    of: int = 0
    corpus: int = 0
    slowest: float = 0.0  # input, in seconds by the clock
    outcomes: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    findings: dict[str, Path] = field(default_factory=dict)  # files by key

    def __str__(self) -> str:
        rate = self.executions / self.seconds if self.seconds else 0.0
        share = 100 * self.lines / self.of if self.of else 0.0
        outcomes = ", ".join(f"{count:,} {word}" for word, count in self.outcomes.most_common(6))
        return (
            f"{self.target:16} {self.executions:9,} executions {rate:8,.0f}/s  "
            f"{self.lines:5,} of {self.of:5,} lines ({share:.0f} %)  corpus {self.corpus:4}  "
            f"slowest {self.slowest:.1f} s  "
            f"{len(self.findings)} findings  [{outcomes}]"
        )


class Campaign:
    def __init__(self, target: Target, cache: Path, seed: int) -> None:
        self.target = target
        self.folder = cache / target.name
        self.seed = seed
        self.report = Report(target.name)
        for name in ("corpus", "found"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for file in (self.folder / "found").iterdir():
            file.unlink()
        (self.folder / "lines.json").unlink(missing_ok=True)

    def run(self, seconds: float, executions: int) -> Report:
        began = time.monotonic()
        workers = 0
        while (left := seconds - (time.monotonic() - began)) > 0 and self.report.executions < executions:
            self._work(f"{self.seed}/{workers}", left, executions - self.report.executions)
            workers += 1
        self.report.seconds = time.monotonic() - began
        self._collect()
        return self.report

    def _work(self, seed: str, seconds: float, executions: int) -> None:
        """Run one worker until it ends or its time is over."""
        for name in ("status.json", "current"):
            (self.folder / name).unlink(missing_ok=True)
        command = ["-m", "fuzz.worker", self.target.name, str(self.folder), seed, str(seconds)]
        command.append(str(executions))
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", *command],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "stderr").open("wb"),
            cwd=ROOT,
        )
        hung = self._watch(worker, seconds)
        self._add_status()
        if worker.returncode:
            self.report.deaths += 1
            self._note_death(worker.returncode, hung)

    def _watch(self, worker: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait for a worker; stop it if it hangs. Returns whether it hung."""
        began = time.time()
        current = self.folder / "current"
        while worker.poll() is None:
            time.sleep(_PAUSE)
            heard = current.stat().st_mtime if current.exists() else began + _START_SECONDS
            if time.time() > heard + 10 * self.target.seconds + _SILENCE_SECONDS:
                worker.send_signal(signal.SIGABRT)  # leaves a traceback
                try:
                    worker.wait(10)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.wait()
                return True
        return False

    def _add_status(self) -> None:
        file = self.folder / "status.json"
        if not file.exists():
            return
        status = json.loads(file.read_text())
        report = self.report
        report.executions += status["executions"]
        report.outcomes.update(status["outcomes"])
        report.lines, report.of = max(report.lines, status["lines"]), status["of"]
        report.corpus, report.slowest = status["corpus"], max(report.slowest, status["slowest"])

    def _note_death(self, code: int, hung: bool) -> None:
        current = self.folder / "current"
        if not current.exists():
            errors = (self.folder / "stderr").read_text("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{self.target.name}: its process ended before the first input\n{errors}")
        log = (self.folder / "fault.log").read_text("utf-8", "replace")
        errors = (self.folder / "stderr").read_text("utf-8", "replace")[-2000:]
        fault = Fault(death(code, log, hung=hung), f"{log[-2000:]}\n{errors}")
        data = current.read_bytes()
        save(self.folder, self.target, fault, data, data)

    def _collect(self) -> None:
        for text in sorted((self.folder / "found").glob("*.txt")):
            key = text.read_text("utf-8").split("\n", 1)[0]
            name = hashlib.sha1(key.encode()).hexdigest()[:12]
            self.report.findings[key] = self.folder / "found" / f"{name}{self.target.suffix}"
