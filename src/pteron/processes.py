"""Python processes that do not import modules from the current folder.

`python -m` looks for modules in the current folder first, so a json.py next to a downloaded model would run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TypedDict


class Start(TypedDict):
    """Arguments of `subprocess` besides the command."""

    cwd: Path
    env: dict[str, str]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python, without the current folder on its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def started_in(folder: Path) -> Start:
    """A process that starts in a folder. Entries of PYTHONPATH become absolute; an empty one, which means the
    current folder, is dropped."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(os.path.abspath(entry) for entry in entries if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
    return Start(cwd=folder, env=environment)
