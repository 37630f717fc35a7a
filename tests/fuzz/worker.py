"""The process that executes inputs, one after the other; its campaign starts another where it dies.

    python -m fuzz.worker TARGET FOLDER SEED SECONDS EXECUTIONS

FOLDER/current holds the input that is being tried, FOLDER/status.json what was done so far, FOLDER/corpus
what reached new lines, FOLDER/found one input of each finding, a text beside it, and what it was made from,
FOLDER/slowest the input that took longest by the clock.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import resource
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

from fuzz.executed import the_device
from fuzz.lines import Lines
from fuzz.target import DEVICE_FAULT, Fault, Target, judge
from fuzz.targets import TARGETS

_STATUS_SECONDS = 1.0


class Worker:
    def __init__(self, target: Target, folder: Path, seed: str) -> None:
        self.target = target
        self.folder = folder
        self.random = Random(seed)
        self.lines = Lines(target.watched)
        self.outcomes: Counter[str] = Counter()
        self.found: list[str] = []
        self.executions = 0
        self.is_spoilt = False  # its device may be lost: another process opens another
        self.slowest = 0.0  # seconds by the clock
        self.corpus: list[bytes] = []
        self._lines_file = folder / "lines.json"
        self._current = os.open(folder / "current", os.O_RDWR | os.O_CREAT)
        self._written = 0.0

    def start(self, executions: int) -> None:
        """Run what is known already, so that only what is new counts as new; where few executions are wanted,
        only some of it."""
        prepare_process(self.target)
        seeds = list(self.target.seeds())
        self.corpus = seeds if len(seeds) <= executions // 2 else self.random.sample(seeds, executions // 2)
        kept = [file.read_bytes() for file in sorted((self.folder / "corpus").iterdir())]
        if self._lines_file.exists():  # an earlier worker of this run has done all that
            self.lines.reached |= {(file, line) for file, line in json.loads(self._lines_file.read_text())}
            self.corpus += kept
            return
        for data in list(self.corpus):
            self.execute(data, data)
        for data in kept:
            self.try_input(data, data, keep=False)

    def run(self, seconds: float, executions: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.executions < executions and not self.is_spoilt:
            origin, data = self.next_input()
            self.try_input(data, origin)

    def next_input(self) -> tuple[bytes, bytes]:
        """What an input is made from, and the input."""
        if self.target.generate and (not self.corpus or self.random.random() < 0.3):
            made = self.target.generate(self.random)
            return made, made
        # The latest finds are the least explored.
        recent = self.corpus[-20:] if self.random.random() < 0.3 else self.corpus
        origin = data = self.random.choice(recent)
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            data = self.target.mutate(data, self.random, lambda: self.random.choice(self.corpus))
        return origin, data

    def try_input(self, data: bytes, origin: bytes, *, keep: bool = True) -> None:
        reached = len(self.lines.reached)
        self.execute(data, origin)
        if len(self.lines.reached) > reached:
            self.corpus.append(data)
            if keep:
                (self.folder / "corpus" / hashlib.sha1(data).hexdigest()).write_bytes(data)

    def execute(self, data: bytes, origin: bytes) -> None:
        os.pwrite(self._current, data, 0)
        os.ftruncate(self._current, len(data))
        watched = self.random.random() < self.target.watched_share
        began = time.monotonic()
        with self.lines.watching() if watched else nullcontext():
            result = judge(self.target, data)
        if time.monotonic() - began > self.slowest:
            self.slowest = time.monotonic() - began
            (self.folder / f"slowest{self.target.suffix}").write_bytes(data)
        self.executions += 1
        if isinstance(result, Fault):
            self.outcomes["finding"] += 1
            self.is_spoilt |= result.key.startswith(DEVICE_FAULT)
            if result.key not in self.found:
                self.found.append(result.key)
                save(self.folder, self.target, result, data, origin)
        else:
            self.outcomes[result] += 1
        if time.monotonic() - self._written > _STATUS_SECONDS:
            self.write_status()

    def write_status(self) -> None:
        self._written = time.monotonic()
        status = {
            "executions": self.executions,
            "outcomes": self.outcomes,
            "lines": len(self.lines.reached),
            "of": len(self.lines.all),
            "corpus": len(self.corpus),
            "slowest": self.slowest,
        }
        self._lines_file.write_text(json.dumps(sorted(self.lines.reached)))
        (self.folder / "status.new").write_text(json.dumps(status))
        (self.folder / "status.new").replace(self.folder / "status.json")


def prepare_process(target: Target) -> None:
    """Warm up, and limit memory: what is allocated beyond fails, instead of taking the machine with it. A
    GPU's driver maps what it likes, so where there is one nothing is limited."""
    target.warm()
    if not target.on_device or the_device().adapter.is_cpu:
        _limit_memory(target.megabytes)


def _limit_memory(megabytes: int) -> None:
    with open("/proc/self/status", encoding="ascii") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    limit = (kilobytes << 10) + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def save(folder: Path, target: Target, fault: Fault, data: bytes, origin: bytes) -> Path:
    """Write a finding and what is known of it."""
    name = hashlib.sha1(fault.key.encode()).hexdigest()[:12]
    file = folder / "found" / f"{name}{target.suffix}"
    file.write_bytes(data)
    (folder / "found" / f"{name}.origin").write_bytes(origin)
    (folder / "found" / f"{name}.txt").write_text(f"{fault.key}\n\n{fault.text}\n", "utf-8")
    return file


def main() -> None:
    name, folder, seed, seconds, executions = sys.argv[1:6]
    with open(Path(folder) / "fault.log", "w", encoding="utf-8") as log:
        faulthandler.enable(log)
        target = TARGETS[name]
        worker = Worker(target, Path(folder), seed)
        most = min(int(executions), target.restart_after)
        worker.start(most)
        worker.run(float(seconds), most)
        worker.write_status()
        log.flush()
        os._exit(0)  # what drivers do at the end of a process is no part of it


if __name__ == "__main__":
    main()
