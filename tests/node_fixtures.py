"""Node and npm in web/, which `scripts/test --all` installs; without them, tests are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).parents[1] / "web"


def node(*arguments: str) -> str:
    """What a node command in web/ prints; it must succeed."""
    return _run("node", *arguments)


def npm(*arguments: str) -> str:
    """The same of an npm command, without what its scripts print."""
    return _run("npm", *arguments, "--foreground-scripts=false", "--loglevel=error")


def _run(program: str, *arguments: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(program, path=path)
    if found is None or not (WEB / "node_modules").is_dir():
        pytest.skip("node and the packages of web/ are not installed (`scripts/test --all` does)")
    environment = {**os.environ, "NO_COLOR": "1", "PATH": path}
    done = subprocess.run([found, *arguments], cwd=WEB, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
