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

FIXTURES = Path(__file__).parent.parent / "fixtures"
RUNNER = Path(__file__).parent / "run_damaged.py"
# For a longer search, set the variables.
FACTOR = float(os.environ.get("PTERON_DAMAGED_FACTOR", "1"))
SEED = int(os.environ.get("PTERON_DAMAGED_SEED", "30"))
SECONDS_PER_COPY = 5.0  # the slowest are those whose new kernels are compiled
REFUSED = {"FormatError", "GraphError", "UnsupportedError"}

# Whole methods in a delegate, all shapes known at load: nothing but a FormatError will do.
DECIDABLE = {
    "mlp_dynamic": 2000,
    "inline_constants": 1000,
    "value_list": 1000,
    "layout_static": 800,
    "quantized_linear": 400,
}
# Where only the value of a position, read at the call, shows a contradiction, it may be the call's fault as
# well: a MisfitError is a ShapeError and a FormatError.
LIVE = {"select_position": 1000, "attention_cache": 1000, "symint_input": 600}
# Operators outside the delegates: what does not fit is found by PyTorch at the call, and is a HostError.
HOSTED = {"two_delegates": 500, "cond": 500, "mutable_buffer_host": 500}
# Language models with 4-bit weights: their kernels read many words at a time.
MODELS = {"tiny_llama_q4_emb4": 80, "tiny_llama_8da4w": 80}
# Kernels for a CPU, and those for a GPU: the same files meet them, so that fewer and other copies will do.
ROUTES = ("software", "hardware")
both_routes = pytest.mark.parametrize("route", ROUTES)


def outcomes_of(path: str, copies: int, route: str = "software") -> dict[str, int]:
    count = round(copies * FACTOR)
    program, seed = FIXTURES / f"{path}.pte", SEED + ROUTES.index(route)
    command = [sys.executable, str(RUNNER), str(program), str(count), str(seed), route]
    path_of_tests = os.pathsep.join(filter(None, (str(FIXTURES.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path_of_tests}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 + count)
    lines = done.stdout.splitlines() or ["(none was announced)"]
    assert done.returncode == 0, f"the process died of {path}, {lines[-1]}\n{done.stderr}"
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


def share(copies: int, route: str) -> int:
    return copies if route == "software" else copies // 4


@both_routes
@pytest.mark.parametrize("name", DECIDABLE)
def test_decidable_programs(name: str, route: str) -> None:
    assert outcomes_of(f"programs/{name}", share(DECIDABLE[name], route), route).keys() <= {"ran", *REFUSED}


@both_routes
@pytest.mark.parametrize("name", LIVE)
def test_programs_with_live_integers(name: str, route: str) -> None:
    outcomes = outcomes_of(f"programs/{name}", share(LIVE[name], route), route)
    assert outcomes.keys() <= {"ran", "MisfitError", *REFUSED}
    assert outcomes.get("MisfitError", 0) < 0.02 * sum(outcomes.values())


@both_routes
@pytest.mark.parametrize("name", MODELS)
def test_language_models(name: str, route: str) -> None:
    outcomes = outcomes_of(f"models/{name}", MODELS[name], route)
    assert outcomes.keys() <= {"ran", "MisfitError", *REFUSED}
    # Most of their shapes follow from the position.
    assert outcomes.get("MisfitError", 0) < 0.06 * sum(outcomes.values())


@pytest.mark.parametrize("name", HOSTED)
def test_programs_with_host_operators(name: str) -> None:
    pytest.importorskip("torch")
    outcomes = outcomes_of(f"programs/{name}", HOSTED[name])
    assert outcomes.keys() <= {"ran", "HostError", *REFUSED}
    assert outcomes.get("HostError", 0) < 0.02 * sum(outcomes.values())
