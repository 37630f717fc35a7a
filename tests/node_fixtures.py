"""Node and npm in web/, where they are installed; tests without them are skipped with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
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
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program} (on Debian: apt install nodejs npm)")
    if not (WEB / "node_modules").is_dir():
        pytest.skip("the packages of web/ are not installed (`npm ci` in web/)")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"node is {version.strip()}; web/ needs 20 or newer")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([found, *arguments], cwd=WEB, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
