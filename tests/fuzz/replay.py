"""One input in a process of its own: what it does, every time the same.

    python -m fuzz.replay TARGET FILE

prints the outcome or the fault as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fuzz import ROOT, TESTS
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS
from fuzz.worker import limit_memory


def replay(target: Target, file: Path) -> tuple[str, str]:
    """The outcome and no text, or a fault's key and its text."""
    command = [sys.executable, "-W", "ignore", "-m", "fuzz.replay", target.name, str(file)]
    try:
        done = subprocess.run(
            command, env=environment(), cwd=ROOT, capture_output=True, timeout=60 + 10 * target.seconds
        )
    except subprocess.TimeoutExpired as error:
        return "hangs", f"{error}"
    errors = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        return death(done.returncode, errors), errors[-4000:]
    key, text = json.loads(done.stdout.splitlines()[-1])
    return key, text


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
    """The target of a file that is called after it, as `program-loop.pte` or what lies in a target's folder."""
    return TARGETS.get(file.name.split("-")[0]) or TARGETS.get(file.absolute().parent.parent.name)


def main() -> None:
    faulthandler.enable()
    target, data = TARGETS[sys.argv[1]], Path(sys.argv[2]).read_bytes()
    target.warm()
    limit_memory(target.megabytes)
    result = judge(target, data)
    print(json.dumps([result.key, result.text] if isinstance(result, Fault) else [result, ""]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
