"""Runs the lowering in a process of its own: a staged checkpoint in, progress lines and a .pte out.

ExecuTorch's exporter logs thousands of lines (also natively), reconfigures Python's logging and holds a
multiple of the model in memory. Apart, none of this reaches the caller; and should the system kill it for
its memory, the caller lives to say so.
"""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from pteron.errors import PteronError
from pteron.llm.export.lowering import PROGRAM, Options, lower
from pteron.llm.export.stages import FINDING, PACKING, QUANTISING, ROUNDING, WRITTEN
from pteron.processes import python_module, started_in

Progress: TypeAlias = Callable[[str], None]
JOB = "job.json"
# What the exporter's log and `lower` say, and what that means.
MILESTONES = {
    ROUNDING: ROUNDING,
    QUANTISING: QUANTISING,
    "Lowering model using following partitioner": FINDING,
    "Operators included in this Vulkan partition": PACKING,
    "Saved exported program": WRITTEN,
}
LINES_KEPT = 15


def lower_apart(folder: Path, options: Options, metadata: dict[str, object], progress: Progress) -> Path:
    (folder / JOB).write_text(json.dumps({"options": asdict(options), "metadata": metadata}), "utf-8")
    # Inside the folder: the exporter takes a path with "8da4w" or "int8" in it for one to quantised weights.
    start = started_in(folder)
    start["env"]["PYTHONWARNINGS"] = "ignore"
    last = deque[str](maxlen=LINES_KEPT)
    with subprocess.Popen(
        python_module(__name__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="locale",
        errors="replace",
        **start,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line)
                _tell(line, progress)
        except BaseException:
            process.kill()
            raise
    if process.returncode == -9:
        raise PteronError("the system ended ExecuTorch's exporter, most probably because memory ran out")
    program = folder / PROGRAM
    if process.returncode or not program.exists():
        raise PteronError(f"ExecuTorch's exporter failed; it said at the end:\n{''.join(last)}")
    return program


def _tell(line: str, progress: Progress) -> None:
    for sign, meaning in MILESTONES.items():
        if sign in line:
            progress(meaning)


def main() -> None:
    job = json.loads(Path(JOB).read_text("utf-8"))
    lower(Path(), Options(**job["options"]), job["metadata"])


if __name__ == "__main__":
    main()
