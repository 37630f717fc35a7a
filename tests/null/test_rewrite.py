"""Rewrites: which calls become one, and which must stay."""

from __future__ import annotations

import pytest
from sketch import Sketch, plan_at

from pteron.graph import Tensor

SIGMOID, MUL, ADD = "aten.sigmoid.default", "aten.mul.Tensor", "aten.add.Tensor"


class Gate:
    """silu(x) · y, as exporters write it, with room for what may keep it from being fused."""

    def __init__(self) -> None:
        self.sketch = Sketch()
        self.x, self.y, self.s, self.g, self.out = (self.sketch.tensor(3, 5) for _ in range(5))

    def chain(self, *, swapped: bool = False) -> None:
        self.sketch.node(SIGMOID, self.x, self.s)
        self.sketch.node(MUL, *((self.s, self.x) if swapped else (self.x, self.s)), self.g)
        self.sketch.node(MUL, *((self.y, self.g) if swapped else (self.g, self.y)), self.out)

    def kernels(self, *outputs: Tensor) -> list[str]:
        prepared = self.sketch.prepare([self.x, self.y], [self.out, *outputs])
        return [call.operator.name for call in prepared.prepared.each]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_chain_becomes_one_call(swapped: bool) -> None:
    gate = Gate()
    gate.chain(swapped=swapped)
    prepared = gate.sketch.prepare([gate.x, gate.y], [gate.out])
    (call,) = prepared.prepared.each
    assert call.operator.name == "pteron.silu_mul"
    assert call.inputs == (gate.x, gate.y)
    assert len(plan_at(prepared).launches) == 1


def test_what_others_see_stays() -> None:
    gate = Gate()
    gate.chain()
    assert gate.kernels(gate.s) == [SIGMOID, MUL, MUL]
    assert gate.kernels(gate.g) == [SIGMOID, MUL, MUL]


def test_what_others_read_stays() -> None:
    gate = Gate()
    gate.chain()
    more = gate.sketch.tensor(3, 5)
    gate.sketch.node(ADD, gate.s, gate.y, 1, more)
    assert gate.kernels(more) == [SIGMOID, MUL, MUL, ADD]


def test_what_changes_in_between_stays() -> None:
    gate = Gate()
    gate.sketch.node(SIGMOID, gate.x, gate.s)
    gate.sketch.node(ADD, gate.x, gate.y, 1, gate.x)
    gate.sketch.node(MUL, gate.x, gate.s, gate.g)
    gate.sketch.node(MUL, gate.g, gate.y, gate.out)
    assert gate.kernels() == [SIGMOID, ADD, MUL, MUL]


def test_another_sigmoid_is_no_gate() -> None:
    gate = Gate()
    gate.sketch.node(SIGMOID, gate.y, gate.s)
    gate.sketch.node(MUL, gate.x, gate.s, gate.g)
    gate.sketch.node(MUL, gate.g, gate.y, gate.out)
    assert gate.kernels() == [SIGMOID, MUL, MUL]
