"""What scripts/test installs, with stand-ins for Python and for the commands that it calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from skips import is_listed

ROOT = Path(__file__).parents[2]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
STAND_IN = '#!/bin/sh\necho "$(basename "$0")" "$@" >> "$CALLS"\n'

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")


def calls(folder: Path, *arguments: str) -> list[str]:
    """The commands that scripts/test calls in a new clone, where npm fails."""
    programs = folder / ".venv" / "bin"
    for made in (folder / "scripts", folder / "web" / "node_modules", programs):
        made.mkdir(parents=True)
    for file in ("scripts/test", "scripts/setup.sh", "pyproject.toml", "web/package-lock.json"):
        shutil.copy(ROOT / file, folder / file)
    for name in ("python", "pytest", "ruff", "mypy", "chromium", "npm", "uname"):
        (programs / name).write_text(STAND_IN, "utf-8")
        (programs / name).chmod(0o755)
    (programs / "npm").write_text(STAND_IN + "exit 1\n", "utf-8")
    (programs / "uname").write_text("#!/bin/sh\necho Linux\n", "utf-8")
    log = folder / "calls"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(log)}
    done = subprocess.run(["bash", folder / "scripts" / "test", *arguments], env=environment, check=False)
    return [*log.read_text("utf-8").splitlines(), f"status {done.returncode}"]


def test_a_narrow_run_needs_no_packages_of_pages(tmp_path: Path) -> None:
    narrow = calls(tmp_path / "narrow", "tests/gpu/test_norm.py", "-k", "rms")
    assert narrow[-1] == "status 0"
    assert any(
        call.startswith("pytest") and call.endswith("--all --durations 10 tests/gpu/test_norm.py -k rms")
        for call in narrow
    )
    whole = calls(tmp_path / "whole", "--all")
    assert whole[-2:] == ["npm ci --prefix web", "status 1"]
    assert [any("checks]" in call for call in each) for each in (narrow, whole)] == [False, True]
    assert not any(call.startswith("npm") for call in narrow)


def test_pytorch_comes_without_cuda_on_linux(tmp_path: Path) -> None:
    (asked,) = [call for call in calls(tmp_path / "clone", "tests/cpu") if CPU_INDEX in call]
    assert "--no-deps torch==2.13.0 " in asked


def test_skips_have_their_reasons_listed() -> None:
    """A whole run fails a test that is skipped for another reason."""
    assert is_listed("fish is not installed")
    assert not any(map(is_listed, ("", "torch is not installed", "fish is not installed, and more")))
