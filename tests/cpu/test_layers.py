"""Plans of graphs whose layers repeat are the plans that come out call by call."""

from __future__ import annotations

import random

import pytest
from fused_layer import ADD, MUL, RELU, Layer
from test_live_dims import TARGETS

from pteron.graph import Tensor
from pteron.ops import Call, Target
from pteron.ops.terms import dim_id
from pteron.plan import Compiled
from pteron.plan.planner import Planning

BLOCKS = 9


class Model(Layer):
    """Layers of drawn parts, all alike, or all but one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        drawn = random.Random(seed)
        self.x = self.tensor(1, 7, 64)
        self.shared, self.old = self.constant(64), self.x
        parts = [self._norm, self._gated, self._old, self._shared, self._state, self._viewed, self._sliced]
        block = [drawn.choice(parts) for _ in range(drawn.randint(1, 4))]
        other, extra = drawn.randrange(2 * BLOCKS), drawn.choice(parts)
        out = self.x
        for number in range(BLOCKS):
            before = out
            for part in (*block, extra) if number == other else block:
                out = part(out)
            self.old, out = before, self.apply(ADD, out, before, 1)
        self.out = self.product(out)

    def _norm(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def _gated(self, x: Tensor) -> Tensor:
        return self.product(self.gate(self.product(x), self.product(x)))

    def _old(self, x: Tensor) -> Tensor:
        """A layer reads what the layer before read."""
        return self.apply(ADD, x, self.old, 1)

    def _shared(self, x: Tensor) -> Tensor:
        return self.apply(MUL, x, self.shared)

    def _state(self, x: Tensor) -> Tensor:
        """A state of each layer, which it reads and changes."""
        state = self.tensor(1, 1, 64)
        self.node("et_vk.prepack.default", self.constant(1, 1, 64), state)
        out = self.apply(MUL, x, state)
        self.node(MUL, state, self.constant(64), state)
        return out

    def _viewed(self, x: Tensor) -> Tensor:
        heads = self.tensor(1, 7, 2, 32)
        self.node("aten.view_copy.default", x, (1, -1, 2, 32), heads)
        out = self.tensor(1, 7, 64)
        self.node("aten.view_copy.default", self.apply(RELU, heads), (1, -1, 64), out)
        return out

    def _sliced(self, x: Tensor) -> Tensor:
        half, out = self.tensor(1, 7, 32), self.tensor(1, 7, 64)
        self.node("aten.slice_copy.Tensor", x, 2, 0, 32, 1, half)
        self.node("aten.cat.default", self.list(half, half), 2, out)
        return out


def both_ways(compiled: Compiled, monkeypatch: pytest.MonkeyPatch, length: int | None) -> tuple[int, int]:
    """Compares the plan with that of a walk; how many calls it planned, of how many."""
    (tokens,) = compiled.prepared.graph.inputs
    assert isinstance(tokens, Tensor)
    values = {} if length is None else {dim_id(tokens.id, 1): length}
    shapes = ((1, length or 7, tokens.shape_max[2]),)
    walked = compiled.walk(shapes, values).finish()
    planned, add = list[Call](), Planning.add

    def counted(self: Planning, call: Call) -> None:
        planned.append(call)
        add(self, call)

    with monkeypatch.context() as patch:
        patch.setattr(Planning, "add", counted)
        assert compiled.plan(shapes, values) == walked
    return len(planned), len(compiled.prepared.each)


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_those_of_calls_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(seed)
    for target in TARGETS.values():
        compiled = model.prepare([model.x], [model.out], target)
        for length in (None, 5):
            both_ways(compiled, monkeypatch, length)
        compiled.plan_at_maximum()
        walked = compiled.walk(compiled.shapes_max, {}).plain_shapes
        assert compiled.shapes(compiled.shapes_max, {}) == walked


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_one_layer_whose_norm_is_read_at_the_end(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the launch of its product computes the norm, too."""
    sketch = Layer()
    sketch.x = out = sketch.tensor(1, 7, 64)
    normed = []
    for _ in range(12):
        normed.append(sketch.norm(out))
        out = sketch.apply("aten.linear.default", normed[-1], sketch.constant(64, 64), None)
    out = sketch.apply(ADD, out, normed[7], 1)
    both_ways(sketch.prepare([sketch.x], [out], target), monkeypatch, 3)


def test_layers_that_join_at_scratch_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of a layer is a sum of parts, added up by the launch that norms it for the next."""
    sketch = Layer()
    sketch.x = out = sketch.tensor(1, 7, 2048)
    for _ in range(9):
        out = sketch.apply(ADD, sketch.product(sketch.norm(out), columns=2048), out, 1)
        hidden = sketch.product(sketch.norm(out), columns=1024)
        out = sketch.apply(ADD, sketch.product(hidden, columns=2048), out, 1)
    compiled = sketch.prepare([sketch.x], [out], TARGETS["GPU, subgroups"])
    planned, calls = both_ways(compiled, monkeypatch, 5)
    assert planned <= calls / 3  # the first block, which differs, one of those that are alike, and the last


def test_layers_that_read_tensors_of_other_live_shapes() -> None:
    sketch = Layer()
    sketch.x = out = sketch.tensor(1, 7, 64)
    narrow = sketch.tensor(1, 7, 64)
    read = [sketch.apply(RELU, sketch.x if number < 6 else narrow) for number in range(12)]
    for each in read:
        out = sketch.apply(ADD, sketch.norm(out), each, 1)
    compiled = sketch.prepare([sketch.x, narrow], [out])
    shapes, values = ((1, 5, 64), (1, 1, 64)), {dim_id(sketch.x.id, 1): 5}
    assert compiled.plan(shapes, values) == compiled.walk(shapes, values).finish()


def test_views_in_turn_have_no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the steps of a GRU's input, which a part of another node's result each views."""
    sketch = Layer()
    sketch.x = sketch.tensor(1, 7, 64)
    parts = [sketch.tensor(1, 1, 64) for _ in range(7)]
    rows = [sketch.tensor(1, 64) for _ in parts]
    for step, part in enumerate(parts):
        sketch.node("aten.slice_copy.Tensor", sketch.x, 1, step, step + 1, 1, part)
    for part, row in zip(parts, rows, strict=True):
        sketch.node("aten.squeeze_copy.dims", part, (0,), row)
    out = sketch.tensor(7, 64)
    sketch.node("aten.cat.default", sketch.list(*rows), 0, out)
    both_ways(sketch.prepare([sketch.x], [out]), monkeypatch, None)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_most_layers_are_not_planned(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Layer()
    sketch.x = out = sketch.tensor(1, 7, 64)
    for _ in range(40):
        normed = sketch.norm(out)
        gated = sketch.product(sketch.gate(sketch.product(normed), sketch.product(normed)))
        out = sketch.apply(ADD, gated, out, 1)
    planned, calls = both_ways(sketch.prepare([sketch.x], [out], target), monkeypatch, 5)
    assert planned < calls / 4
