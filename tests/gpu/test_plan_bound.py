"""The plan cache: beyond its bound plans are made again, with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.runtime import plan_cache


def test_more_shapes_than_plans(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "PLANS_KEPT", 2)
    inputs = [np.full((rows, 7), rows, np.float32) for rows in range(1, 7)]
    with pteron.load(programs / "mlp_dynamic.pte") as program:
        method = program["forward"]
        expected = [method(x)[0] for x in inputs]
        made = method.counters.plans
        for x, right in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(method(x)[0], right)
        assert method.counters.plans - made == len(inputs)
