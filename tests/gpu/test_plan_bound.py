"""The bound on kept plans, when forgetting one is interrupted: whatever the point, later calls are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from interruption import InterruptedAt

import pteron
from pteron.runtime import plan_cache


def test_interrupted_while_a_plan_is_forgotten(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "PLANS_KEPT", 2)
    inputs = [np.full((rows, 7), rows, np.float32) for rows in range(1, 7)]
    with pteron.load(programs / "mlp_dynamic.pte") as program:
        method = program["forward"]
        expected = [method(x)[0] for x in inputs]
        interrupted = 0
        for point in range(1, 40):
            try:
                with InterruptedAt(point, plan_cache.__file__):
                    method(inputs[point % len(inputs)])
            except KeyboardInterrupt:
                interrupted += 1
            for x, right in zip(inputs, expected, strict=True):
                np.testing.assert_array_equal(method(x)[0], right)
        assert interrupted > 10
