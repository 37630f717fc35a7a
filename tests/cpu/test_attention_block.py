"""Rewrites around attention between 4-bit products: which calls become one, and which must stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fused_layer import ADD, CLONE, DYNAMIC, FUSED, FUSED_DYNAMIC, GPU, LINEAR, RELU, VIEW
from fused_layer import Layer as Products
from sketch import plan_at

from pteron.families.transformer import attention_q4
from pteron.graph import Tensor, ValueList
from pteron.plan import Advance, Compiled

pytestmark = pytest.mark.rewrites
ROPE, SDPA = "et_vk.apply_rotary_emb_hf.default", "sdpa_with_kv_cache.default"
OPTIONED = "pteron.attention.default"
BLOCK, TURNED = "pteron.attention_q4", "pteron.rope_sdpa"
HEADS, KEY_HEADS, WIDTH, CAPACITY = 4, 2, 16, 600
NVIDIA = replace(GPU, invocations_max=1024)


class Layer(Products):
    """A layer's attention: three steps at most, four heads of sixteen, two of keys."""

    def __init__(self, options: tuple[Any, ...] | None = None) -> None:
        super().__init__()
        self.position = self.symbol()
        self.options = options

    def heads(self, x: Tensor) -> Tensor:
        return self.view(x, 1, x.shape_max[1], x.shape_max[2] // WIDTH, WIDTH)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What queries see after a rotation, with the layer's options; all are heads."""
        tables = (self.constant(CAPACITY, WIDTH), self.constant(CAPACITY, WIDTH))
        turned = self.tensor(*q.shape_max), self.tensor(*k.shape_max)
        self.node(ROPE, q, k, *tables, self.position, self.list(*turned))
        caches = [self.constant(1, CAPACITY, KEY_HEADS, WIDTH) for _ in range(2)]
        out = self.tensor(*q.shape_max)
        if self.options is None:
            self.node(SDPA, *turned, v, *caches, self.position, 1, None, 0.0, True, None, out)
        else:
            self.node(OPTIONED, *turned, v, *caches, self.position, *self.options, out)
        return out

    def block(self, x: Tensor | None = None, order: str = "qkv", *, is_int8: bool = False) -> Tensor:
        """Attention of three products of one x, made in this order, of int8 or not."""
        x, make = x or self.x, self.dynamic if is_int8 else self.product
        columns = {"q": HEADS * WIDTH, "k": KEY_HEADS * WIDTH, "v": KEY_HEADS * WIDTH}
        made = {name: make(x, columns[name]) for name in order}
        return self.attend(*(self.heads(made[name]) for name in "qkv"))

    def compiled(self, *outputs: Tensor) -> Compiled:
        return self.prepare([self.position, self.x], outputs, NVIDIA)

    def launches(self, position: int, *outputs: Tensor, steps: int = 1) -> list[str]:
        """The kernels that steps from a position on take."""
        plan = plan_at(self.compiled(*outputs), {self.x: (1, steps, 64)}, {self.position: position})
        return [launch.module.kernel.name for launch in plan.launches]

    def names(self, *outputs: Tensor) -> list[str]:
        compiled = self.compiled(*outputs)
        plan_at(compiled, values={self.position: 5})
        calls = compiled.prepared.each
        return [call.operator.name for call in calls if call.operator.name not in (VIEW, CLONE)]


def joined(layer: Layer, seen: Tensor) -> Tensor:
    """The heads of a step side by side."""
    return layer.view(seen, 1, 3, HEADS * WIDTH)


THREE = ["q4_digits", "attention_decode", "q4_digits"]


def test_a_whole_block() -> None:
    layer = Layer()
    seen = layer.block(layer.norm(layer.x))
    out = layer.apply(ADD, layer.x, layer.product(joined(layer, seen)), 1)
    assert layer.names(out) == [BLOCK]
    assert layer.launches(5, out) == THREE  # a context in one piece
    assert layer.launches(550, out) == THREE  # and in two
    assert layer.launches(550, out, steps=3) == THREE


def test_a_block_with_options() -> None:
    """A window bounds the splits of attention; sinks need its own merge."""
    layer = Layer((None, 128, 50.0, None, None, None))
    out = layer.product(joined(layer, layer.block(layer.norm(layer.x))))
    assert layer.names(out) == [BLOCK]
    assert layer.launches(5, out) == layer.launches(550, out) == THREE
    layer = Layer()
    layer.options = (None, None, None, layer.constant(HEADS), None, None)
    out = layer.product(joined(layer, layer.block(layer.norm(layer.x))))
    assert layer.names(out) == [BLOCK]
    assert layer.launches(5, out) == THREE
    assert layer.launches(550, out) == ["q4_digits", "attention_decode", "attention_merge", "q4_digits"]


@pytest.mark.parametrize("order", ["qkv", "vqk"])
def test_a_whole_block_of_int8(order: str) -> None:
    layer = Layer()
    seen = layer.block(layer.norm(layer.x), order, is_int8=True)
    out = layer.apply(ADD, layer.x, layer.dynamic(joined(layer, seen)), 1)
    assert layer.names(out) == [BLOCK]
    for position, steps in ((5, 1), (550, 1), (550, 3)):
        assert layer.launches(position, out, steps=steps) == THREE
    (call,) = (call for call in layer.compiled(out).prepared.each if call.operator.name == BLOCK)
    weights, sums = (call.inputs[place] for place in (3, 9))
    queries = [node for node in layer.nodes if node.name == DYNAMIC][order.index("q")]
    assert isinstance(weights, ValueList)
    assert isinstance(sums, ValueList)
    assert (weights.items[0], sums.items[0]) == (queries.args[3], queries.args[4])


@pytest.mark.parametrize("is_int8", [True, False])
def test_int8_on_one_side_alone(is_int8: bool) -> None:
    layer = Layer()
    seen = joined(layer, layer.block(is_int8=is_int8))
    out = layer.product(seen) if is_int8 else layer.dynamic(seen)
    assert layer.names(out) == [BLOCK]
    assert layer.launches(550, out) == THREE


def test_a_step_follows_another_without_the_host() -> None:
    layer = Layer()
    out = layer.product(joined(layer, layer.block()))
    plan = plan_at(layer.compiled(out), {layer.x: (1, 1, 64)}, {layer.position: 200})
    advance = Advance.of(plan, {layer.position.id: 1})
    numbers = plan.numbers({layer.position.id: 200})
    assert advance is not None
    assert numbers is not None
    assert advance.steps(numbers, 1000) == 512 - 200


def test_parts_follow_one_another_where_subgroups_are_missing() -> None:
    layer = Layer()
    out = layer.product(joined(layer, layer.block()))
    compiled = layer.prepare([layer.position, layer.x], [out], replace(NVIDIA, subgroup_size=0))
    plan = plan_at(compiled, {layer.x: (1, 1, 64)}, {layer.position: 200})
    kernels = [launch.module.kernel.name for launch in plan.launches]
    assert kernels == ["q4_matvec", "rope", "attention_split", "attention_merge", "q4_matvec"]


def test_many_splits_are_brought_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()
    out = layer.product(joined(layer, layer.block()))
    monkeypatch.setattr(attention_q4, "SPLITS_MAX", 1)
    assert layer.launches(550, out) == ["q4_digits", "attention_decode", "attention_merge", "q4_digits"]


@pytest.mark.parametrize("order", ["qkv", "vqk", "kvq"])
def test_products_in_any_order(order: str) -> None:
    layer = Layer()
    seen = layer.block(order=order)
    assert layer.names(seen) == [BLOCK]
    (call,) = (call for call in layer.compiled(seen).prepared.each if call.operator.name == BLOCK)
    weights: Any = call.inputs[3]
    assert [tensor.shape_max[0] for tensor in weights.items] == [64, 32, 32]
    queries, keys, values = (layer.nodes[order.index(name)].args[1] for name in "qkv")
    assert weights.items == (queries, keys, values)


def test_what_others_see_stays() -> None:
    layer = Layer()
    q, k, v = (layer.product(layer.x, count) for count in (64, 32, 32))
    seen = layer.attend(*(layer.heads(each) for each in (q, k, v)))
    assert layer.names(seen, k) == [FUSED, TURNED]
    layer = Layer()
    q, k, v = (layer.dynamic(layer.x, count) for count in (64, 32, 32))
    seen = layer.attend(*(layer.heads(each) for each in (q, k, v)))
    assert layer.names(seen, k) == [FUSED_DYNAMIC, TURNED]
    layer = Layer()
    seen = layer.block()
    out = layer.product(joined(layer, seen))
    assert layer.names(out, seen) == [BLOCK, LINEAR]
    assert layer.names(out, layer.apply(RELU, seen)) == [BLOCK, LINEAR, RELU]


def test_products_of_different_inputs_stay() -> None:
    layer = Layer()
    other = layer.apply(RELU, layer.x)
    q, k, v = layer.product(layer.x), layer.product(layer.x, 32), layer.product(other, 32)
    seen = layer.attend(*(layer.heads(each) for each in (q, k, v)))
    assert BLOCK not in layer.names(seen)


def test_heads_across_rows_stay() -> None:
    """Rows of x that attention does not see as steps."""
    layer = Layer()
    q, k, v = (layer.product(layer.x, count) for count in (64, 32, 32))
    parts = (layer.view(each, 1, 6, each.shape_max[2] // (2 * WIDTH), WIDTH) for each in (q, k, v))
    tables = (layer.constant(CAPACITY, WIDTH), layer.constant(CAPACITY, WIDTH))
    q, k, v = parts
    turned = layer.tensor(*q.shape_max), layer.tensor(*k.shape_max)
    layer.node(ROPE, q, k, *tables, layer.position, layer.list(*turned))
    caches = [layer.constant(1, CAPACITY, 1, WIDTH) for _ in range(2)]
    out = layer.tensor(*q.shape_max)
    layer.node(SDPA, *turned, v, *caches, layer.position, 1, None, 0.0, True, None, out)
    assert layer.names(out) == [FUSED, TURNED]


def test_a_product_of_other_rows_stays() -> None:
    layer = Layer()
    seen = layer.block()
    assert layer.names(layer.product(layer.view(seen, 1, 6, 32), 16)) == [BLOCK, LINEAR]
    layer = Layer()
    flat = layer.product(layer.view(layer.block(), 3, 64), 16)
    assert layer.names(flat) == [BLOCK, LINEAR]


def test_a_second_product_stays() -> None:
    layer = Layer()
    seen = joined(layer, layer.block())
    assert layer.names(layer.product(seen), layer.product(seen, 32)) == [BLOCK, FUSED]


def test_a_decode_step_binds_no_more_than_is_promised() -> None:
    layer = Layer()
    seen = layer.block(layer.norm(layer.x))
    out = layer.apply(ADD, layer.x, layer.product(joined(layer, seen)), 1)
    plan = plan_at(layer.compiled(out), {layer.x: (1, 1, 64)}, {layer.position: 200})
    assert max(len(launch.module.bindings) for launch in plan.launches) == 8
