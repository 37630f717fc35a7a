"""The cost of a node does not grow with its graph, counted in calls: a clock also measures the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest
from sketch import Sketch, plan_at


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of Python functions a piece of work makes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def plan_chain(count: int, memories: int | None) -> None:
    """Prepare and plan a chain of nodes whose tensors share `memories` memory objects, or have one each."""
    sketch = Sketch()
    tensors = [sketch.tensor(4, 3)]
    for index in range(count):
        tensors.append(sketch.tensor(4, 3, memory=index % memories if memories else index))
        sketch.node("aten.relu.default", *tensors[-2:])
    plan_at(sketch.prepare(tensors[:1], tensors[-1:]))


@pytest.mark.parametrize("memories", [2, None], ids=["shared", "own"])
def test_a_node_costs_the_same_in_a_larger_graph(memories: int | None) -> None:
    """Checks, rewrites, placement and planning."""
    plan_chain(10, memories)  # what is made once in a process
    small, large = (calls_of(partial(plan_chain, count, memories)) / count for count in (60, 400))
    assert large < 1.2 * small
