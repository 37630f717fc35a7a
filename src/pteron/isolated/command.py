"""A command of Pteron's in a process of its own, which knows by its environment that it is that."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pteron.errors import IsolatedError
from pteron.isolated.process import how_it_ended
from pteron.processes import python_module, started_in

_MARK = "PTERON_ISOLATED"


def is_isolated() -> bool:
    """Whether this process is such a one."""
    return _MARK in os.environ


def run_isolated(name: str, given: Sequence[str], seconds: float) -> int:
    """Run `pteron` with the arguments given; its exit code."""
    start = started_in(Path.cwd())  # where relative paths lead to the same files
    start["env"][_MARK] = "1"
    try:
        # In a group of its own: Ctrl-C reaches this process, which ends that one.
        code = subprocess.run(
            python_module("pteron", *given), timeout=seconds, check=False, process_group=0, **start
        ).returncode
    except subprocess.TimeoutExpired:
        raise IsolatedError(f"{name}: took longer than {seconds:g} s and was ended") from None
    if code < 0:
        raise IsolatedError(f"{name}: {how_it_ended(code)}")
    return code
