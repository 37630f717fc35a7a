"""Damaged programs, the whole way: each copy is refused with a FormatError, or loads and runs.

Copies are tried in processes of their own, so that a crash is seen, and named by the last copy announced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "programs"
RUNNER = Path(__file__).parent / "run_damaged.py"
# For a longer search, set the variables.
FACTOR = float(os.environ.get("PTERON_DAMAGED_FACTOR", "1"))
SEED = int(os.environ.get("PTERON_DAMAGED_SEED", "30"))
SECONDS_PER_COPY = 5.0  # the slowest are those whose new kernels are compiled
REFUSED = {"FormatError", "GraphError", "UnsupportedError"}

# Whole methods in a delegate, all shapes known at load: nothing but a FormatError will do.
DECIDABLE = {"mlp_dynamic": 2000, "inline_constants": 1000, "value_list": 1000, "layout_static": 800}
# Where only the value of a position, read at the call, shows a contradiction, it may be the call's fault as
# well: a MisfitError is a ShapeError and a FormatError.
LIVE = {"select_position": 1000, "attention_cache": 1000, "symint_input": 600}
# Operators outside the delegates: what does not fit is found by PyTorch at the call, and is a HostError.
HOSTED = {"two_delegates": 500, "cond": 500, "mutable_buffer_host": 500}


def outcomes_of(name: str, copies: int) -> dict[str, int]:
    count = round(copies * FACTOR)
    command = [sys.executable, str(RUNNER), str(FIXTURES / f"{name}.pte"), str(count), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + count)
    lines = done.stdout.splitlines() or ["(none was announced)"]
    assert done.returncode == 0, f"the process died of {name}, {lines[-1]}\n{done.stderr}"
    report = json.loads(lines[-1])
    assert not report["failures"], "\n\n".join(report["failures"][:5])
    seconds, slowest = report["slowest"]
    assert seconds < SECONDS_PER_COPY, slowest
    outcomes: dict[str, int] = report["outcomes"]
    assert sum(outcomes.values()) == count
    # Damage that always or never matters would mean that it goes to the wrong places.
    refused = sum(number for outcome, number in outcomes.items() if outcome in REFUSED)
    assert 0.2 * count < refused < count
    assert outcomes["ran"] > 0.03 * count
    # A tensor of 128 MB to 4 GB is no contradiction: another adapter may have room for it.
    assert outcomes.pop("too large here", 0) <= max(2, 0.005 * count)
    return outcomes


def test_there_are_enough_copies() -> None:
    assert sum(DECIDABLE.values()) >= 2000


@pytest.mark.parametrize("name", DECIDABLE)
def test_decidable_programs(name: str) -> None:
    assert outcomes_of(name, DECIDABLE[name]).keys() <= {"ran", *REFUSED}


@pytest.mark.parametrize("name", LIVE)
def test_programs_with_live_integers(name: str) -> None:
    outcomes = outcomes_of(name, LIVE[name])
    assert outcomes.keys() <= {"ran", "MisfitError", *REFUSED}
    assert outcomes.get("MisfitError", 0) < 0.02 * sum(outcomes.values())


@pytest.mark.parametrize("name", HOSTED)
def test_programs_with_host_operators(name: str) -> None:
    pytest.importorskip("torch")
    outcomes = outcomes_of(name, HOSTED[name])
    assert outcomes.keys() <= {"ran", "HostError", *REFUSED}
    assert outcomes.get("HostError", 0) < 0.02 * sum(outcomes.values())
