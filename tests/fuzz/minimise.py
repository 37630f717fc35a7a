"""A finding -> a simpler input with the same fault.

    python -m fuzz.minimise TARGET FILE KEY SECONDS

Exceptions are reproduced in one process, faults that end the process in a new process per trial.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fuzz.replay import environment, replay
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS
from fuzz.worker import prepare_process

_SECONDS = 8.0


def minimise(target: Target, file: Path, key: str, seconds: float = _SECONDS) -> Path:
    """Simplify the file of a finding in place; returns the file."""
    if key.startswith(("died", "ended", "hangs")):
        trial = file.with_suffix(".trial")

        def fails(candidate: bytes) -> bool:
            trial.write_bytes(candidate)
            return replay(target, trial)[0] == key

        simplify(target, file, fails, seconds)
        trial.unlink(missing_ok=True)
    else:
        command = [sys.executable, "-W", "ignore", "-m", "fuzz.minimise"]
        command += [target.name, str(file), key, str(seconds)]
        with suppress(subprocess.TimeoutExpired):  # the file holds the simplest input so far
            subprocess.run(command, env=environment(), capture_output=True, timeout=2 * seconds + 60)
    return file


def simplify(target: Target, file: Path, fails: Callable[[bytes], bool], seconds: float) -> None:
    """Replace the file of a finding by the simplest input that still fails."""
    end = time.monotonic() + seconds
    data, origin = file.read_bytes(), file.with_suffix(".origin").read_bytes()
    for simpler in (target.shrink, lambda data: reverted(data, origin), removed):
        if simpler is None:
            continue
        again = True
        while again:  # until no simpler input fails
            again = False
            for candidate in simpler(data):
                if time.monotonic() > end:
                    return
                if candidate != data and fails(candidate):
                    data, again = candidate, True
                    file.write_bytes(data)
                    break


def reverted(data: bytes, origin: bytes) -> Iterator[bytes]:
    """The input with some changes reverted, if both have the same length."""
    if len(data) != len(origin):
        return
    changed = [at for at in range(len(data)) if data[at] != origin[at]]
    size = len(changed)
    while size:
        for start in range(0, len(changed), size):
            copy = bytearray(data)
            for at in changed[start : start + size]:
                copy[at] = origin[at]
            yield bytes(copy)
        size //= 2


def removed(data: bytes) -> Iterator[bytes]:
    """The input without a part of it, large parts first."""
    size = len(data) // 2
    while size >= max(1, len(data) // 256):
        for start in range(0, len(data), size):
            yield data[:start] + data[start + size :]
        size //= 2


def main() -> None:
    name, file, key, seconds = sys.argv[1:5]
    target = TARGETS[name]
    prepare_process(target)

    def fails(candidate: bytes) -> bool:
        result = judge(target, candidate)
        return isinstance(result, Fault) and result.key == key

    simplify(target, Path(file), fails, float(seconds))
    os._exit(0)


if __name__ == "__main__":
    main()
