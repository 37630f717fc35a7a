"""Lowers a staged checkpoint in a subprocess: a folder in, progress lines and a .pte out.

ExecuTorch's exporter logs thousands of lines (some from C++), reconfigures Python's logging and needs several
times the model's size in memory. In a subprocess none of this affects the caller, which also survives if the
system kills the exporter for its memory.
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
from pteron.llm.export.cost import FINDING, PACKING, QUANTISING, ROUNDING, WRITTEN
from pteron.llm.export.lowering import PROGRAM, Options, lower
from pteron.processes import python_module, started_in

Progress: TypeAlias = Callable[[str], None]
JOB = "job.json"
# Lines in the log of the exporter and of `lower` -> the stage that starts there.
MILESTONES = {
    ROUNDING: ROUNDING,
    QUANTISING: QUANTISING,
    "Lowering model using following partitioner": FINDING,
    "Operators included in this Vulkan partition": PACKING,
    "Saved exported program": WRITTEN,
}
LINES_KEPT = 15  # of the log, for an error message


def lower_in_subprocess(
    folder: Path, options: Options, metadata: dict[str, object], progress: Progress
) -> Path:
    (folder / JOB).write_text(json.dumps({"options": asdict(options), "metadata": metadata}), "utf-8")
    # With relative paths: the exporter takes a path with "8da4w" or "int8" in it for quantised weights.
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
                for sign, stage in MILESTONES.items():
                    if sign in line:
                        progress(stage)
        except BaseException:
            process.kill()
            raise
    if process.returncode == -9:
        raise PteronError("the system killed ExecuTorch's exporter, probably because memory ran out")
    program = folder / PROGRAM
    if process.returncode or not program.exists():
        raise PteronError(f"ExecuTorch's exporter failed; the end of its log:\n{''.join(last)}")
    return program


def main() -> None:
    job = json.loads(Path(JOB).read_text("utf-8"))
    lower(Path(), Options(**job["options"]), job["metadata"])


if __name__ == "__main__":
    main()
