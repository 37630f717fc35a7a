"""The examples of docs/python.md run, in their order, as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
PROGRAMS = ("mlp_dynamic.pte", "named_inputs.pte", "mutable_buffer.pte")


def test_examples_run(programs: Path, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 10
    for name in PROGRAMS:
        assert name in PAGE.read_text(encoding="utf-8")
        shutil.copy(programs / name, tmp_path)
    script = tmp_path / "examples.py"
    script.write_text("\n".join(examples), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
