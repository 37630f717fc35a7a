"""The files that web/ builds are those of its sources, and its own checks pass.

Without node, or without the packages of web/package-lock.json (`npm ci` in web/), most of it is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"


def node(*arguments: str) -> str:
    """What a node command prints; it must succeed."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node (on Debian: apt install nodejs npm)")
    if not (WEB / "node_modules").is_dir():
        pytest.skip("the packages of web/ are not installed (`npm ci` in web/)")
    done = subprocess.run(
        [found, *arguments], cwd=WEB, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_built_files_are_those_of_the_sources() -> None:
    node("build.mjs", "--check")


def test_types() -> None:
    node("node_modules/typescript/bin/tsc", "--noEmit")


def test_lint() -> None:
    node("node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings")


def test_own_tests() -> None:
    node(
        "--test", "--test-reporter", "dot", *(str(path) for path in sorted((WEB / "test").glob("*.test.mjs")))
    )


def test_the_lock_file_names_no_other_registry() -> None:
    lock = (WEB / "package-lock.json").read_text("utf-8")
    assert lock.count('"integrity"') > 5
    assert lock.count('"resolved"') == lock.count('"resolved": "https://registry.npmjs.org/')
