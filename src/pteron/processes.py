"""Python processes of Pteron's own, which import nothing from the folder that the user happens to be in.

`python -m` looks for every module in the current folder first, and there may lie what somebody downloaded: a
json.py beside a model would be executed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TypedDict

ISOLATED_SECONDS = 60.0  # that an isolated program may take to load, and for a call


class Start(TypedDict):
    """What `subprocess` is to be told, besides the command."""

    cwd: Path
    env: dict[str, str]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python, without the current folder on its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def started_in(folder: Path) -> Start:
    """A process that starts in a folder of ours.

    In PYTHONPATH an empty entry stands for the current folder, and is left out; others mean what they do
    here.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(os.path.abspath(entry) for entry in entries if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
    return Start(cwd=folder, env=environment)
