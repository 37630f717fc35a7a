"""Inputs in a separate process, reproducibly.

    python -m fuzz.replay TARGET FILE [TARGET FILE ...]

prints a line of JSON for each: the outcome and no text, or a fault's key and its text.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fuzz import ROOT, TESTS
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS
from fuzz.worker import prepare_process


def replay(target: Target, file: Path) -> tuple[str, str]:
    """The outcome and no text, or a fault's key and its text."""
    return replay_all([(target, file)])[file]


def replay_all(inputs: Sequence[tuple[Target, Path]]) -> dict[Path, tuple[str, str]]:
    """The outcome of each input. They share a process, which is replaced if it dies."""
    left = list(inputs)
    found: dict[Path, tuple[str, str]] = {}
    while left:
        command = [sys.executable, "-W", "ignore", "-m", "fuzz.replay"]
        command += [word for target, file in left for word in (target.name, str(file))]
        limit = 60 + sum(5 * target.seconds for target, _ in left)
        try:
            done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, timeout=limit)
            code, output, errors = done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")
        except subprocess.TimeoutExpired as error:
            code, output, errors = -9, error.stdout or b"", str(error)
        for line in output.splitlines():
            _, file = left.pop(0)
            key, text = json.loads(line)
            found[file] = key, text
        if left:  # the process ended at the first of them
            _, file = left.pop(0)
            found[file] = death(code, errors, hung=code == -9), errors[-4000:]
    return found


def environment() -> dict[str, str]:
    """The environment of a process that runs targets."""
    path = os.pathsep.join([str(ROOT / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}


def death(code: int, log: str, *, hung: bool = False) -> str:
    """The key of a fault that ended its process, from the traceback that it left."""
    frame = re.search(r"pteron/(\S+\.py)\", line \d+ in (\w+)", log)
    where = f" in {frame[1]} {frame[2]}" if frame else ""
    return f"{'hangs' if hung else f'died by {-code}' if code < 0 else f'ended with {code}'}{where}"


def target_of(file: Path) -> Target | None:
    """The target in a file's name, as in `program-loop.pte`, or of its folder."""
    return TARGETS.get(file.name.split("-")[0]) or TARGETS.get(file.absolute().parent.parent.name)


def main() -> None:
    faulthandler.enable()
    for name, file in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        target = TARGETS[name]
        prepare_process(target)
        result = judge(target, Path(file).read_bytes())
        print(
            json.dumps([result.key, result.text] if isinstance(result, Fault) else [result, ""]), flush=True
        )
    os._exit(0)  # skips the drivers' exit handlers


if __name__ == "__main__":
    main()
