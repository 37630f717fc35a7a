"""Calls whose launches were joined are one step, and only what it leaves to others is looked at."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broken_kernel import broken
from join_cases import sum_and_norm, two_parts  # noqa: F401  # a fixture

from pteron import Device
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES
from pteron.tools.compare import Tolerances, Verdict
from pteron.tools.compare.calls import StepChecker
from pteron.tools.compare.comparison import find_culprit
from pteron.tools.compare.float64 import float64
from pteron.tools.compare.subgraph import Subgraph

pytestmark = pytest.mark.rewrites


@pytest.fixture
def gpu(device: Device) -> Target:
    return replace(device.target, is_cpu=False)


def judged(device: Device, target: Target, *, shows: bool) -> StepChecker:
    graph, (inputs, *_) = sum_and_norm(256, shows=shows)
    judge = StepChecker(float64, Tolerances())
    part = Subgraph(graph, tuple(inputs))
    part.step(device, target, [*REWRITES, *JOINS], partial(judge.observe, 0))
    return judge


@pytest.mark.parametrize("shows", [False, True])
def test_what_joined_calls_leave_is_right(shows: bool, device: Device, gpu: Target) -> None:
    judge = judged(device, gpu, shows=shows)
    assert judge.departure is None
    assert [row.nodes for row in judge.rows] == [(0, 1, 2, 3)] * (1 + shows), "the sum where it is an output"
    assert {row.verdict for row in judge.rows} == {Verdict.WITHIN}
    assert judge.rows[0].ran == "pteron.linear_q4 + pteron.linear_q4"


def test_a_wrong_join_is_distinguished_from_wrong_nodes(device: Device, gpu: Target) -> None:
    with broken("q4_merge_rows", "inverseSqrt(", "1.01 * inverseSqrt("):
        judge = judged(device, gpu, shows=False)
        assert judge.departure is not None
        culprit = find_culprit(judge.departure, float64, device, gpu, Tolerances())
    assert judge.departure.row.nodes == (0, 1, 2, 3)
    assert culprit.endswith("each node alone is correct, so the fused operator is wrong")
