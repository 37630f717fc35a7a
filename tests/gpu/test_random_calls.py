"""Random use of programs, a short walk with the same steps at every run (random_calls.py)."""

from __future__ import annotations

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from random_calls import Calls


@pytest.mark.long
def test_random_calls() -> None:
    run_state_machine_as_test(
        Calls,
        settings=settings(
            max_examples=3,
            stateful_step_count=25,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
