"""`pteron COMMAND --isolated`: the command in its own process, which an environment variable marks."""

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
    """Whether this process was started by `run_isolated`."""
    return _MARK in os.environ


def run_isolated(name: str, given: Sequence[str], seconds: float) -> int:
    """Run `pteron` with the arguments given; its exit code."""
    start = started_in(Path.cwd())  # relative paths stay valid
    start["env"][_MARK] = "1"
    try:
        # In its own process group: Ctrl-C reaches this process, which ends the other.
        code = subprocess.run(
            python_module("pteron", *given), timeout=seconds, check=False, process_group=0, **start
        ).returncode
    except subprocess.TimeoutExpired:
        raise IsolatedError(f"{name}: took longer than {seconds:g} s and was ended") from None
    if code < 0:
        raise IsolatedError(f"{name}: {how_it_ended(code)}")
    return code
