"""Operators outside the delegates, given wild arguments, run or refuse: nothing ends the process or hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS, SEED = 20, 9


def test_wild_arguments() -> None:
    pytest.importorskip("torch")
    worker = Path(__file__).with_name("wild_host.py")
    done = subprocess.run([sys.executable, worker, str(SECONDS), str(SEED)], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"ended by {lines[-1:]}\n{done.stderr[-2000:]}"
    found = json.loads(lines[-1])
    outcomes = found["outcomes"]
    # Some must run, or nothing but the refusals was tried; some must be refused, or nothing wild was.
    assert outcomes["ran"] > 0.2 * found["calls"]
    assert outcomes["HostError"] > 0.2 * found["calls"]
    # The interpreter's border makes errors of Pteron of others.
    rest = found["calls"] - outcomes["ran"] - outcomes["HostError"]
    assert rest < 0.005 * found["calls"], found["strange"]
