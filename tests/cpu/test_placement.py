"""Placement and folding: which tensors share a buffer, what outlives a call, what is computed only once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sketch import Sketch, plan_at

from pteron.dtypes import DType
from pteron.errors import MisfitError
from pteron.graph import Tensor
from pteron.ops import Target
from pteron.ops.operand import Slot, State, Weight
from pteron.plan import Compiled


def slot(prepared: Compiled, tensor: Tensor) -> int:
    buffer = prepared.placement.buffers[tensor.id]
    assert isinstance(buffer, Slot)
    return buffer.index


def chain(sketch: Sketch, *tensors: Tensor) -> None:
    """Each tensor computed from the one before."""
    for before, after in pairwise(tensors):
        sketch.node("aten.relu.default", before, after)


# Memory objects ---------------------------------------------------------------------------------


def test_tensors_of_one_memory_take_turns() -> None:
    sketch = Sketch()
    x = sketch.tensor(3, 5)
    a, c = sketch.tensor(3, 5, memory=0), sketch.tensor(3, 5, memory=0)
    b, d = sketch.tensor(3, 5, memory=1), sketch.tensor(3, 5, memory=1)
    chain(sketch, x, a, b, c, d)
    prepared = sketch.prepare([x], [d])
    assert slot(prepared, a) == slot(prepared, c)
    assert slot(prepared, b) == slot(prepared, d)
    assert len({slot(prepared, tensor) for tensor in (x, a, b)}) == 3


def test_positions_keep_their_buffer() -> None:
    """A decode loop on the GPU advances them between steps."""
    sketch = Sketch()
    positions, x = sketch.tensor(1, dtype=DType.I32, memory=0), sketch.tensor(3, 5)
    a, b, c = sketch.tensor(3, 5), sketch.tensor(3, 5, memory=0), sketch.tensor(3, 5)
    symbol = sketch.symbol()
    sketch.node("et_vk.select_as_symint.default", positions, 0, 0, symbol)
    chain(sketch, x, a, b, c)
    prepared = sketch.prepare([positions, x], [c, symbol])
    assert slot(prepared, positions) not in {slot(prepared, tensor) for tensor in (a, b, c)}


def test_a_slot_is_as_large_as_its_largest_tensor() -> None:
    sketch = Sketch()
    x = sketch.tensor(2, 3)
    a, b = sketch.tensor(2, 3, memory=0), sketch.tensor(4, 3)
    c = sketch.tensor(8, 3, memory=0)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.repeat.default", a, (2, 1), b)
    sketch.node("aten.repeat.default", b, (2, 1), c)
    prepared = sketch.prepare([x], [c])
    assert prepared.placement.slot_bytes[slot(prepared, a)] == 8 * 3 * 4


def test_tensors_alive_together_are_split() -> None:
    """The file's memory plan may let an operator write over its input; WebGPU does not."""
    sketch = Sketch()
    x, out = sketch.tensor(3), sketch.tensor(3)
    a, b = sketch.tensor(3, memory=0), sketch.tensor(3, memory=0)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.relu.default", a, b)
    sketch.node("aten.relu.default", b, out)
    prepared = sketch.prepare([x], [out])
    assert slot(prepared, a) != slot(prepared, b)


def test_an_output_keeps_its_slot() -> None:
    sketch = Sketch()
    x = sketch.tensor(3)
    early, a, late = sketch.tensor(3, memory=0), sketch.tensor(3), sketch.tensor(3, memory=0)
    sketch.node("aten.relu.default", x, early)
    chain(sketch, x, a, late)
    prepared = sketch.prepare([x], [early, late])
    assert slot(prepared, early) != slot(prepared, late)


def test_bytes_follow_the_adapter() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(8, dtype=DType.F16), sketch.tensor(8, dtype=DType.F16)
    sketch.node("aten.relu.default", x, out)
    assert sketch.prepare([x], [out], Target(shader_f16=True)).placement.slot_bytes == (16, 16)
    assert sketch.prepare([x], [out], Target(shader_f16=False)).placement.slot_bytes == (32, 32)


# Views ------------------------------------------------------------------------------------------


def test_a_view_lives_in_what_it_views() -> None:
    sketch = Sketch()
    x, a, b, out = sketch.tensor(6), sketch.tensor(2, 3), sketch.tensor(2, 1, 3), sketch.tensor(2, 1, 3)
    sketch.node("aten.view_copy.default", x, (2, 3), a)
    sketch.node("aten.unsqueeze_copy.default", a, 1, b)
    sketch.node("aten.relu.default", b, out)
    prepared = sketch.prepare([x], [out])
    assert slot(prepared, x) == slot(prepared, a) == slot(prepared, b)
    assert [launch.node for launch in plan_at(prepared).launches] == [2]


def test_a_view_keeps_what_it_views_alive() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(6), sketch.tensor(6)
    a, viewed = sketch.tensor(6, memory=0), sketch.tensor(2, 3)
    b, c = sketch.tensor(6), sketch.tensor(6, memory=0)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.view_copy.default", a, (2, 3), viewed)
    sketch.node("aten.relu.default", x, b)
    sketch.node("aten.relu.default", b, c)
    sketch.node("aten.add.Tensor", c, c, 1, out)
    last = sketch.tensor(2, 3)
    sketch.node("aten.relu.default", viewed, last)
    prepared = sketch.prepare([x], [out, last])
    assert slot(prepared, a) != slot(prepared, c)


def test_a_view_into_another_storage_is_a_copy() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(6, dtype=DType.I32), sketch.tensor(6)
    sketch.node("aten._to_copy.default", x, *[None] * 6, out)
    prepared = sketch.prepare([x], [out])
    assert slot(prepared, x) != slot(prepared, out)
    assert len(plan_at(prepared).launches) == 1


def test_types_of_one_storage_are_a_view_but_for_booleans() -> None:
    sketch = Sketch()
    x, wide = sketch.tensor(6, dtype=DType.I32), sketch.tensor(6, dtype=DType.I64)
    byte, truth = sketch.tensor(6, dtype=DType.U8), sketch.tensor(6, dtype=DType.BOOL)
    sketch.node("aten._to_copy.default", x, *[None] * 6, wide)
    sketch.node("aten._to_copy.default", byte, *[None] * 6, truth)
    prepared = sketch.prepare([x, byte], [wide, truth])
    assert slot(prepared, x) == slot(prepared, wide)
    assert slot(prepared, byte) != slot(prepared, truth)


def test_a_view_of_what_changes_is_a_copy() -> None:
    sketch = Sketch()
    state, x, before = sketch.constant(3), sketch.tensor(3), sketch.tensor(3)
    sketch.node("aten.clone.default", state, None, before)
    sketch.node("aten.add.Tensor", state, x, 1, state)
    prepared = sketch.prepare([x], [before, state])
    assert prepared.placement.buffers[state.id] == State(state.id)
    assert prepared.placement.buffers[before.id] != State(state.id)
    assert [launch.module.kernel.name for launch in plan_at(prepared).launches] == [
        "copy",
        "binary_alike",
        "copy",
    ]


# Constants and states ---------------------------------------------------------------------------


def test_equal_constants_are_one_weight() -> None:
    sketch = Sketch()
    x, a, b = sketch.tensor(3), sketch.tensor(3), sketch.tensor(3)
    first, second, other = (sketch.constant(3, key=key) for key in ("same", "same", "other"))
    sketch.node("aten.add.Tensor", x, first, 1, a)
    sketch.node("aten.add.Tensor", a, second, 1, b)
    sketch.node("aten.add.Tensor", b, other, 1, (out := sketch.tensor(3)))
    buffers = sketch.prepare([x], [out]).placement.buffers
    assert isinstance(buffers[first.id], Weight)
    assert buffers[first.id] == buffers[second.id] != buffers[other.id]


def test_a_prepacked_constant_is_its_weight() -> None:
    sketch = Sketch()
    x, weight, packed, out = sketch.tensor(3), sketch.constant(3), sketch.tensor(3), sketch.tensor(3)
    sketch.node("et_vk.prepack.default", weight, packed)
    sketch.node("aten.add.Tensor", x, packed, 1, out)
    prepared = sketch.prepare([x], [out])
    assert prepared.placement.buffers[packed.id] == prepared.placement.buffers[weight.id]
    assert prepared.placement.states == {}
    assert len(plan_at(prepared).launches) == 1


def test_a_prepacked_constant_that_changes_is_a_state() -> None:
    sketch = Sketch()
    value, position = sketch.tensor(1, 2, 3, 4), sketch.symbol()
    constant, cache, out = sketch.constant(1, 7, 3, 4), sketch.tensor(1, 7, 3, 4), sketch.tensor(1)
    sketch.node("et_vk.prepack.default", constant, cache)
    sketch.node("update_cache.default", value, cache, position, out)
    placement = sketch.prepare([value, position], [out]).placement
    assert placement.buffers[cache.id] == State(cache.id)
    initial = placement.states[cache.id].initial
    assert initial is not None
    assert initial.constant is constant.constant


def test_a_prepacked_constant_that_is_written_is_a_state() -> None:
    """As exporters write `y = state + x; state.copy_(relu(x))`: the result has the id of the state."""
    sketch = Sketch()
    x, constant, state = sketch.tensor(3), sketch.constant(3), sketch.tensor(3)
    shown, doubled, out = sketch.tensor(3), sketch.tensor(3), sketch.tensor(3)
    sketch.node("et_vk.prepack.default", constant, state)
    sketch.node("aten.view_copy.default", state, (3,), shown)
    sketch.node("aten.add.Tensor", state, state, 1, doubled)
    sketch.node("aten.relu.default", x, state)
    sketch.node("aten.add.Tensor", shown, doubled, 1, out)
    prepared = sketch.prepare([x], [out])
    buffers, initial = prepared.placement.buffers, prepared.placement.states[state.id].initial
    assert buffers[state.id] == State(state.id)
    assert buffers[shown.id] != State(state.id)  # it keeps the old value
    assert initial is not None
    assert initial.constant is constant.constant
    assert prepared.prepared.once == ()


def test_a_state_is_written_as_a_whole() -> None:
    sketch = Sketch()
    x, constant, state = sketch.tensor(3, 5), sketch.constant(3, 5), sketch.tensor(3, 5)
    out = sketch.tensor(3, 5)
    sketch.node("et_vk.prepack.default", constant, state)
    sketch.node("aten.relu.default", x, state)
    sketch.node("aten.relu.default", state, out)
    prepared = sketch.prepare([x], [out])
    plan_at(prepared)
    with pytest.raises(MisfitError, match=r"the state %2:f32\[3, 5\] is written as \[2, 5\]"):
        plan_at(prepared, {x: (2, 5)})


def test_two_states_of_one_constant_are_apart() -> None:
    sketch = Sketch()
    x = sketch.tensor(3)
    first, second = sketch.constant(3, key="zeros"), sketch.constant(3, key="zeros")
    sketch.node("aten.add.Tensor", first, x, 1, first)
    sketch.node("aten.add.Tensor", second, x, 2, second)
    buffers = sketch.prepare([x], [first, second]).placement.buffers
    assert buffers[first.id] != buffers[second.id]


# Folding ----------------------------------------------------------------------------------------


def test_what_constants_decide_is_computed_once() -> None:
    sketch = Sketch()
    x, number = sketch.tensor(3), sketch.constant(1, dtype=DType.I32)
    converted, halved, out = sketch.tensor(1), sketch.tensor(1), sketch.tensor(3)
    sketch.node("aten._to_copy.default", number, *[None] * 6, converted)
    sketch.node("aten.relu.default", converted, halved)
    sketch.node("aten.mul.Tensor", x, halved, out)
    prepared = sketch.prepare([x], [out])
    assert [call.node.index for call in prepared.prepared.once] == [0, 1]
    assert [call.node.index for call in prepared.prepared.each] == [2]


def test_live_integers_and_states_are_never_folded() -> None:
    sketch = Sketch()
    p, constant, state = sketch.symbol(), sketch.constant(5, 3), sketch.constant(3)
    picked, filled, copied = sketch.tensor(3), sketch.tensor(5), sketch.tensor(3)
    sketch.node("aten.select_copy.int", constant, 0, p, picked)
    sketch.node("aten.full.default", sketch.list(p), 1, None, None, None, None, filled)
    sketch.node("aten.add.Tensor", state, picked, 1, state)
    sketch.node("aten.relu.default", state, copied)
    prepared = sketch.prepare([p], [picked, filled, copied])
    assert prepared.prepared.once == ()


def test_a_folded_result_keeps_its_slot() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(3), sketch.tensor(3)
    a, folded, b = sketch.tensor(3, memory=0), sketch.tensor(3, memory=0), sketch.tensor(3, memory=0)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.relu.default", sketch.constant(3), folded)
    sketch.node("aten.add.Tensor", a, folded, 1, (total := sketch.tensor(3)))
    sketch.node("aten.relu.default", total, b)
    sketch.node("aten.relu.default", b, out)
    prepared = sketch.prepare([x], [out])
    assert slot(prepared, folded) not in (slot(prepared, a), slot(prepared, b))
    assert slot(prepared, a) == slot(prepared, b)
