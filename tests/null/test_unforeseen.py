"""What a family's function did not foresee in a graph becomes an error that says where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sketch import Sketch, plan_at

from pteron.errors import GraphError, MisfitError
from pteron.graph import Graph
from pteron.ops import OPERATORS, Target
from pteron.ops.rewrite import REWRITES
from pteron.passes import prepare
from pteron.plan import Compiled

RELU = "aten.relu.default"


def graph() -> Graph:
    sketch = Sketch()
    x, out = sketch.tensor(2, 3), sketch.tensor(2, 3)
    sketch.node(RELU, x, out)
    return sketch.graph([x], [out])


@pytest.mark.parametrize("raised", [IndexError("short"), RecursionError()])
@pytest.mark.parametrize("function", ["shape", "compute"])
def test_an_operators_functions(monkeypatch: pytest.MonkeyPatch, raised: Exception, function: str) -> None:
    def fails(*_: Any) -> Any:
        raise raised

    changed: dict[str, Any] = {function: fails}
    monkeypatch.setitem(OPERATORS, RELU, replace(OPERATORS[RELU], takes_target=False, **changed))
    with pytest.raises(MisfitError, match=rf"node 0 aten\.relu\.default: {type(raised).__name__}") as caught:
        plan_at(Compiled(prepare(graph()), Target()))
    assert caught.value.is_certain
    assert caught.value.__cause__ is raised


def test_a_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> Any:
        raise IndexError("short")

    monkeypatch.setitem(REWRITES, "failing", fails)
    with pytest.raises(GraphError, match="rewrite failing does not understand its nodes: IndexError: short"):
        prepare(graph(), ["failing"])
