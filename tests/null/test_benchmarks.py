"""Every benchmark starts: what it imports is there, and it says what it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(
    path
    for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")
    if "__main__" in path.read_text("utf-8")
)


@pytest.mark.long(every=5)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_says_what_it_takes(script: Path) -> None:
    if "\nimport torch" in script.read_text("utf-8"):
        pytest.importorskip("torch", reason="this one exports with PyTorch")
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
