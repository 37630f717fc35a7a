"""Runs inputs in a process that may die: mutated ones (`fuzz`) or those of files (`replay`).

    python -m fuzz.process fuzz TARGET FOLDER SEED SECONDS EXECUTIONS
    python -m fuzz.process replay FILE ...

prints a line of JSON for each input: the outcome and no text, or a fault's key and its text.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz import ROOT, TESTS
from fuzz.executed import the_device
from fuzz.target import DEVICE_FAULT, Fault, Target, judge
from fuzz.targets import TARGETS

_START_SECONDS = 120  # until the first input runs
_RESTART_AFTER = 5000  # executions: native libraries keep some memory
_FINDINGS_MAX = 20  # then it ends: most are the same, and a process that dies takes seconds to replace


@dataclass
class Report:
    executions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Path] = field(default_factory=dict)  # files by key


def fuzz(target: Target, folder: Path, seed: int, seconds: float, executions: int = sys.maxsize) -> Report:
    """Mutated inputs for some time; a finding is written to `folder`, with a text beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / f"{target.name}-current{target.suffix}"
    report = Report()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and report.executions < executions:
        if report.outcomes["finding"] > _FINDINGS_MAX:
            break
        current.unlink(missing_ok=True)
        most = min(_RESTART_AFTER, executions - report.executions)
        words = ("fuzz", target.name, folder, f"{seed}/{report.executions}", left, most)
        results, died = _work(*words, seconds=left + 10 * target.seconds)
        if died is not None:
            if not current.exists():
                raise RuntimeError(f"{target.name}: its process ended before the first input\n{died.text}")
            _save(folder, target, died, current.read_bytes())
            results.append((died.key, died.text))
        for key, text in results:
            report.executions += 1
            report.outcomes["finding" if text else key] += 1
            if text:
                report.findings[key] = _file(folder, target, key)
    return report


def replay(files: Sequence[Path]) -> dict[Path, tuple[str, str]]:
    """The outcome of each file. They share a process, which is replaced if it dies."""
    left = list(files)
    found: dict[Path, tuple[str, str]] = {}
    while left:
        results, died = _work("replay", *left, seconds=sum(5 * target_of(file).seconds for file in left))
        if died is not None:
            results.append((died.key, died.text))
        found |= zip(left, results, strict=False)
        left = left[len(results) :]
    return found


def target_of(file: Path) -> Target:
    """The target in a file's name, as in `program-loop.pte`."""
    name = file.name.split("-")[0]
    if name not in TARGETS:
        raise SystemExit(f"{file.name}: the name begins with none of {', '.join(TARGETS)}")
    return TARGETS[name]


def missing(target: Target) -> str | None:
    """Why a target cannot run on this machine."""
    absent = [package for package in target.needs if importlib.util.find_spec(package) is None]
    return f"{', '.join(absent)} is not installed" if absent else None


def _work(*words: object, seconds: float) -> tuple[list[tuple[str, str]], Fault | None]:
    """The results that a process printed, and how it died, if it did."""
    path = os.pathsep.join([str(ROOT / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "fuzz.process", *map(str, words)]
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, timeout=seconds + _START_SECONDS
        )
        how, output, errors = f"ended with {done.returncode}", done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        how, output, errors = "hangs", error.stdout or b"", error.stderr or b""
    results = [(key, text) for key, text in map(json.loads, output.splitlines())]
    if how == "ended with 0":
        return results, None
    log = errors.decode("utf-8", "replace")
    frame = re.search(r"pteron/(\S+\.py)\", line \d+ in (\w+)", log)
    where = f" in {frame[1]} {frame[2]}" if frame else ""
    return results, Fault(how + where, log[-4000:] or how)


def _file(folder: Path, target: Target, key: str) -> Path:
    return folder / f"{target.name}-{hashlib.sha1(key.encode()).hexdigest()[:12]}{target.suffix}"


def _save(folder: Path, target: Target, fault: Fault, data: bytes) -> None:
    file = _file(folder, target, fault.key)
    file.write_bytes(data)
    file.with_suffix(".txt").write_text(f"{fault.key}\n\n{fault.text}\n", "utf-8")


# In the process ---------------------------------------------------------------------------------


def main(kind: str, *words: str) -> None:
    faulthandler.enable()
    if kind == "replay":
        for file in map(Path, words):
            prepare_process(target_of(file))
            _print(judge(target_of(file), file.read_bytes()))
    else:
        _fuzz(TARGETS[words[0]], Path(words[1]), Random(words[2]), float(words[3]), int(words[4]))
    os._exit(0)  # skips the drivers' exit handlers


def _fuzz(target: Target, folder: Path, random: Random, seconds: float, executions: int) -> None:
    prepare_process(target)
    seeds = list(target.seeds())
    current = folder / f"{target.name}-current{target.suffix}"
    end = time.monotonic() + seconds
    for _ in range(executions):
        data = random.choice(seeds)
        for _ in range(random.choice((0, 1, 1, 1, 1, 2, 4))):
            data = target.mutate(data, random, lambda: random.choice(seeds))
        current.write_bytes(data)
        result = judge(target, data)
        if isinstance(result, Fault):
            _save(folder, target, result, data)
        _print(result)
        if isinstance(result, Fault) and result.key.startswith(DEVICE_FAULT):
            return  # the device may be lost: another process opens another
        if time.monotonic() > end:
            return


def _print(result: str | Fault) -> None:
    print(json.dumps([result.key, result.text] if isinstance(result, Fault) else [result, ""]), flush=True)


def prepare_process(target: Target) -> None:
    """Warm up, and limit memory: what is allocated beyond fails, instead of taking the machine with it. A
    GPU's driver maps what it likes, so where there is one nothing is limited."""
    target.warm()
    if target.on_device and not the_device().adapter.is_cpu:
        return
    with open("/proc/self/status", encoding="ascii") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    limit = (kilobytes << 10) + (target.megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(*sys.argv[1:])
