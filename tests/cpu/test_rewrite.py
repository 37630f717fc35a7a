"""Rewrites: which calls become one, and which must stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sketch import Sketch, plan_at

from pteron.errors import InputError
from pteron.graph import Node, Tensor
from pteron.ops import Call
from pteron.ops.rewrite import REWRITES, Flow, Replacement
from pteron.ops.signature import parse
from pteron.passes import resolve
from pteron.passes.rewrite import REWRITES_VARIABLE, insertion_point, rewrite_calls

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


@pytest.mark.rewrites
@pytest.mark.parametrize("swapped", [False, True])
def test_a_chain_becomes_one_call(swapped: bool) -> None:
    gate = Gate()
    gate.chain(swapped=swapped)
    prepared = gate.sketch.prepare([gate.x, gate.y], [gate.out])
    (call,) = prepared.prepared.each
    assert call.operator.name == "pteron.silu_mul"
    assert call.inputs == (gate.x, gate.y)
    (launch,) = plan_at(prepared).launches
    assert launch.nodes == call.nodes == (0, 1, 2)


def test_what_others_see_or_read_stays() -> None:
    gate = Gate()
    gate.chain()
    assert gate.kernels(gate.s) == [SIGMOID, MUL, MUL]
    assert gate.kernels(gate.g) == ["pteron.silu", MUL]
    more = gate.sketch.tensor(3, 5)
    gate.sketch.node(ADD, gate.s, gate.y, 1, more)
    assert gate.kernels(more) == [SIGMOID, MUL, MUL, ADD]


def test_what_changes_in_between_and_other_sigmoids_stay() -> None:
    gate = Gate()
    gate.sketch.node(SIGMOID, gate.x, gate.s)
    gate.sketch.node(ADD, gate.x, gate.y, 1, gate.x)
    gate.sketch.node(MUL, gate.x, gate.s, gate.g)
    gate.sketch.node(MUL, gate.g, gate.y, gate.out)
    assert gate.kernels() == [SIGMOID, ADD, MUL, MUL]
    gate = Gate()
    gate.sketch.node(SIGMOID, gate.y, gate.s)
    gate.sketch.node(MUL, gate.x, gate.s, gate.g)
    gate.sketch.node(MUL, gate.g, gate.y, gate.out)
    assert gate.kernels() == [SIGMOID, MUL, MUL]


@pytest.mark.parametrize("is_update", [True, False])
def test_what_a_state_holds_for_the_next_call_stays(is_update: bool) -> None:
    """Although nothing reads the state after its last write."""
    gate = Gate()
    start, state, total = gate.sketch.constant(3, 5), gate.sketch.tensor(3, 5), gate.sketch.tensor(3, 5)
    gate.sketch.node("et_vk.prepack.default", start, state)
    gate.chain()
    gate.sketch.node(ADD, gate.out, state, 1, total)
    gate.sketch.node(ADD, state if is_update else gate.y, gate.x, 1, state)
    assert gate.kernels(total) == ["et_vk.prepack.default", "pteron.silu_mul", ADD, ADD]


def test_a_state_in_a_chain_stays() -> None:
    gate = Gate()
    start, state = gate.sketch.constant(3, 5), gate.sketch.tensor(3, 5)
    gate.sketch.node("et_vk.prepack.default", start, state)
    gate.g = state
    gate.chain()
    assert gate.kernels() == ["et_vk.prepack.default", "pteron.silu", MUL]


# Switching --------------------------------------------------------------------------------------


def test_a_rewrite_is_switched_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    gate.chain()
    for wanted in ("none", "-silu_mul, -silu"):
        monkeypatch.setenv(REWRITES_VARIABLE, wanted)
        assert gate.kernels() == [SIGMOID, MUL, MUL]
    monkeypatch.setenv(REWRITES_VARIABLE, "-silu_mul")
    assert gate.kernels() == ["pteron.silu", MUL]
    monkeypatch.setenv(REWRITES_VARIABLE, "-silu_mull")
    with pytest.raises(InputError, match=r"names silu_mull; there are .*silu_mul"):
        gate.kernels()
    monkeypatch.delenv(REWRITES_VARIABLE)
    assert gate.kernels() == ["pteron.silu_mul"]


# Several roots, updates, shared values: the driver alone ----------------------------------------


def flow_of(sketch: Sketch, inputs: list[Tensor], outputs: list[Tensor]) -> Flow:
    graph = sketch.graph(inputs, outputs)
    return Flow(graph, resolve(graph))


def fused(flow: Flow, positions: list[int], outputs: list[Tensor], *reads: Tensor) -> int | None:
    """The position at which one call with these inputs and outputs could replace the calls at `positions`."""
    old = tuple(flow.calls[position] for position in positions)
    operator = replace(old[-1].operator, signature=parse("a b? c? d? -> x y? z?"))
    new = Call(old[-1].node, operator, (*reads, *[None] * (4 - len(reads))), tuple(outputs))
    return insertion_point(flow, Replacement(old, new))


def test_several_roots() -> None:
    """q, k and v of one x: three calls become one with three outputs, placed before their first reader."""
    sketch = Sketch()
    x, q, k, v, used = (sketch.tensor(3, 5) for _ in range(5))
    for out in (q, k, v):
        sketch.node(SIGMOID, x, out)
    sketch.node(MUL, q, k, used)
    flow = flow_of(sketch, [x], [used, v])
    assert fused(flow, [0, 1, 2], [q, k, v], x) == 2
    assert fused(flow, [0, 1, 2], [q, k], x) is None  # v is an output of the graph


def test_a_reader_between_the_roots() -> None:
    sketch = Sketch()
    x, q, k, used = (sketch.tensor(3, 5) for _ in range(4))
    sketch.node(SIGMOID, x, q)
    sketch.node(SIGMOID, q, used)
    sketch.node(SIGMOID, x, k)
    flow = flow_of(sketch, [x], [used, k])
    assert fused(flow, [0, 2], [q, k], x) == 1  # early enough for the reader of q
    sketch = Sketch()
    sketch.node(SIGMOID, x, q)
    sketch.node(SIGMOID, q, used)
    sketch.node(SIGMOID, used, k)
    flow = flow_of(sketch, [x], [used, k])
    assert fused(flow, [0, 2], [q, k], x, used) is None  # k comes from what is made of q


def test_a_shared_value_stays_an_output() -> None:
    """A residual sum that a norm and a later sum read: the fused call makes both."""
    sketch = Sketch()
    x, y, total, normed, later = (sketch.tensor(3, 5) for _ in range(5))
    sketch.node(ADD, x, y, 1, total)
    sketch.node(SIGMOID, total, normed)
    sketch.node(ADD, total, normed, 1, later)
    flow = flow_of(sketch, [x, y], [later])
    assert fused(flow, [0, 1], [total, normed], x, y) == 1
    assert fused(flow, [0, 1], [normed], x, y) is None


def test_updates_keep_their_order() -> None:
    """RoPE and a cache write become one call, unless a node reads the cache in between."""
    sketch = Sketch()
    x, rotated, done = sketch.tensor(1, 2, 3, 4), sketch.tensor(1, 2, 3, 4), sketch.tensor(1)
    cache, seen = sketch.constant(1, 7, 3, 4), sketch.tensor(1, 7, 3, 4)
    sketch.node(SIGMOID, x, rotated)
    sketch.node("update_cache.default", rotated, cache, 0, done)
    sketch.node(SIGMOID, cache, seen)
    assert fused(flow_of(sketch, [x], [seen]), [0, 1], [done], x, cache) == 1
    sketch = Sketch()
    again = sketch.tensor(1)
    sketch.node("update_cache.default", x, cache, 0, done)
    sketch.node(SIGMOID, cache, seen)
    sketch.node("update_cache.default", x, cache, 0, again)
    assert fused(flow_of(sketch, [x], [seen]), [0, 2], [done, again], x, cache) is None


def test_a_new_call_reads_past_views_only_what_stays() -> None:
    """A call behind a view that stays may read what it views, unless that changes."""
    sketch = Sketch()
    x, constant, state = sketch.tensor(3), sketch.constant(3), sketch.tensor(3)
    shown, s, out = (sketch.tensor(3) for _ in range(3))
    sketch.node("et_vk.prepack.default", constant, state)
    sketch.node("aten.clone.default", state, None, shown)
    sketch.node(SIGMOID, shown, s)
    sketch.node(MUL, s, x, out)
    assert fused(flow_of(sketch, [x], [out]), [2, 3], [out], state, x) == 3
    sketch.nodes.insert(2, Node(9, SIGMOID, (x, state)))
    assert fused(flow_of(sketch, [x], [out]), [3, 4], [out], state, x) is None
    assert fused(flow_of(sketch, [x], [out]), [3, 4], [out], shown, x) == 4


def test_what_is_written_twice_has_no_maker() -> None:
    """A call in place: neither writer alone makes the value, and it is not the same at every read."""
    sketch = Sketch()
    x, once, twice, out = (sketch.tensor(3, 5) for _ in range(4))
    cache, done = sketch.constant(1, 7, 3, 4), sketch.tensor(1)
    sketch.node(SIGMOID, x, once)
    sketch.node(MUL, x, once, twice)
    sketch.node(ADD, twice, once, 1, twice)
    sketch.node("update_cache.default", sketch.constant(1, 2, 3, 4), cache, 0, done)
    sketch.node(MUL, twice, once, out)
    flow = flow_of(sketch, [x], [out, done])
    assert flow.maker(once, SIGMOID) is flow.calls[0]
    assert [flow.maker(twice, name) for name in (MUL, ADD)] == [None, None]
    assert flow.maker(once, MUL) is flow.maker(x, SIGMOID) is flow.maker(3, ADD) is None
    assert [flow.is_fixed(value) for value in (x, once, out)] == [True, True, True]
    assert [flow.is_fixed(value) for value in (twice, cache)] == [False, False]


def test_a_new_call_does_not_read_what_vanishes() -> None:
    sketch = Sketch()
    x, y, s, g, a, b = (sketch.tensor(3) for _ in range(6))
    sketch.node(SIGMOID, x, s)
    sketch.node(MUL, x, s, g)
    sketch.node(MUL, g, g, a)
    sketch.node(MUL, a, y, b)
    names = [call.operator.name for call in sketch.prepare([x, y], [b]).prepared.each]
    assert names == ["pteron.silu", MUL, MUL]  # g is read twice: by the gate, and as what is gated


def test_replacements_that_reach_into_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """q and k of x, and those of y: where the roots of the two alternate, either alone would stand before the
    first reader, and each must still be there."""
    sketch = Sketch()
    x, y, a, b, used, c, d = (sketch.tensor(3, 5) for _ in range(7))
    sketch.node(SIGMOID, x, a)
    sketch.node(SIGMOID, y, b)
    sketch.node(MUL, a, b, used)
    sketch.node(SIGMOID, x, c)
    sketch.node(SIGMOID, y, d)

    def pairs(flow: Flow) -> Iterator[Replacement]:
        for first, second in ((a, c), (b, d)):
            old = tuple(call for out in (first, second) if (call := flow.maker(out, SIGMOID)))
            if len(old) == 2:
                operator = replace(old[0].operator, signature=parse("self -> x y"), name="both")
                yield Replacement(old, Call(old[0].node, operator, old[0].inputs, (first, second)))

    monkeypatch.setitem(REWRITES, "pairs", pairs)
    graph = sketch.graph([x, y], [used, c, d])
    calls = rewrite_calls(graph, resolve(graph), ["pairs"])
    assert [call.operator.name for call in calls] == ["both", "both", MUL]
