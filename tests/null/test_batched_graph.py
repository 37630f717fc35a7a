"""A language model's graph over one sequence becomes one over rows of many, or says what is in the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pteron
from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.families.attention.sdpa import CACHES, caches_of
from pteron.graph import Constant, Graph, Node, Tensor, Value
from pteron.ops import OPERATORS, Target
from pteron.passes import prepare
from pteron.passes.batched import batch
from pteron.plan import Compiled

ATTENTION, SLICE = "sdpa_with_kv_cache.default", "aten.slice_copy.Tensor"
NORM, SELECT, ADD = "et_vk.rms_norm.default", "aten.select_copy.int", "aten.add.Tensor"


@pytest.fixture(scope="module")
def graph(models: Path) -> Graph:
    return pteron.load(models / "tiny_llama_q4.pte").graphs("forward")[0]


def changed(graph: Graph, name: str, change: Callable[[Node], Node]) -> Graph:
    """The graph with the first node of an operator changed."""
    first = next(node for node in graph.nodes if node.name == name)
    return replace(graph, nodes=tuple(change(node) if node is first else node for node in graph.nodes))


def argument(place: int, value: Value) -> Callable[[Node], Node]:
    """A change of one argument."""
    return lambda node: replace(node, args=(*node.args[:place], value, *node.args[place + 1 :]))


@pytest.mark.parametrize(
    "name", ["llama_q4", "llama_8da4w", "llama_fp32", "llama_q4_fp16", "llama_q4_static", "qwen3_fp32"]
)
def test_a_model_over_rows(name: str, models: Path) -> None:
    (graph,) = pteron.load(models / f"tiny_{name}.pte").graphs("forward")
    made = batch(graph, 11)
    chosen, context = made.graph.inputs
    assert isinstance(chosen, Tensor)
    assert chosen.shape_max == (11,)
    (logits,) = made.graph.outputs
    assert isinstance(logits, Tensor)
    assert logits.shape_max == (11, 512)
    prepared = prepare(made.graph)
    states = Compiled(prepared, Target()).placement.states
    assert {states[id].bytes for id in made.caches} == {4 * math.prod((11, 64, *_heads(graph)))}
    assert all(states[id].bytes == 4 * 11 for id in (made.tokens, made.positions))
    assert made.capacity == 64
    compiled = Compiled(prepared, Target(is_cpu=False, workgroup_bytes_max=49152))
    for rows in (1, 5, 11):
        plan = compiled.plan(((rows,), None), {context.id: 40})
        assert plan.shapes[logits.id] == (rows, 512)
        assert plan.numbers({context.id: 64}) is not None  # of one bucket


def _heads(graph: Graph) -> tuple[int, ...]:
    cache = next(node for node in graph.nodes if node.name == ATTENTION).args[3]
    assert isinstance(cache, Tensor)
    return cache.shape_max[2:]


def test_caches_are_known_by_name(graph: Graph) -> None:
    """All that an operator over caches writes to is one; a node gives them where its signature says."""
    for name, caches in CACHES.items():
        arguments = OPERATORS[name].signature.arguments
        assert {argument.name for argument in arguments if argument.mutated} <= {*caches}
        assert {*caches} <= {argument.name for argument in arguments if argument.kind == "tensor"}
    attention = next(node for node in graph.nodes if node.name == ATTENTION)
    assert caches_of(attention) == [*attention.args[3:5]]
    assert caches_of(next(node for node in graph.nodes if node.name == NORM)) == []


def test_a_mask_is_of_one_sequence(graph: Graph) -> None:
    mask = Tensor(
        9000, DType.F32, (31, 64), Constant("mask", DType.F32, (31, 64), memoryview(bytes(31 * 256)))
    )
    with pytest.raises(UnsupportedError, match=r"cannot be batched: node 17 sdpa_with_kv_cache.*a mask"):
        batch(changed(graph, ATTENTION, argument(7, mask)), 3)


def test_a_cache_of_its_own(graph: Graph) -> None:
    cache = next(node for node in graph.nodes if node.name == ATTENTION).args[3]
    with pytest.raises(UnsupportedError, match="the cache of several attentions"):
        batch(changed(graph, ATTENTION, argument(4, cache)), 3)
    assert isinstance(cache, Tensor)
    assert cache.constant is not None
    ones = memoryview(b"\1" * len(cache.constant.data))
    filled = replace(cache, constant=replace(cache.constant, data=ones))
    with pytest.raises(UnsupportedError, match="does not begin as zeros"):
        batch(changed(graph, ATTENTION, argument(3, filled)), 3)


def test_rows_that_would_mix(graph: Graph) -> None:
    def softmax(node: Node) -> Node:
        return replace(node, name="aten._softmax.default", args=(node.args[0], 1, False, node.args[-1]))

    with pytest.raises(UnsupportedError, match=r"node 8 aten._softmax.default: it has no batching rule"):
        batch(changed(graph, NORM, softmax), 3)
    with pytest.raises(UnsupportedError, match="not the last"):
        batch(changed(graph, SELECT, argument(2, 3)), 3)
    per_step = Tensor(
        9000, DType.F32, (31, 64), Constant("steps", DType.F32, (31, 64), memoryview(bytes(31 * 256)))
    )
    with pytest.raises(UnsupportedError, match="has a value for every step"):
        batch(changed(graph, ADD, argument(1, per_step)), 3)


def test_the_position_elsewhere(graph: Graph) -> None:
    position = next(node for node in graph.nodes if node.name == SLICE).args[2]
    with pytest.raises(UnsupportedError, match="it takes the position"):
        batch(changed(graph, SLICE, argument(3, position)), 3)

    def sized(node: Node) -> Node:
        return replace(
            node, name="et_vk.rms_norm.default", args=(node.args[0], node.args[1], position, node.args[-1])
        )

    with pytest.raises(UnsupportedError, match="which differs from sequence to sequence"):
        batch(changed(graph, NORM, sized), 3)


def test_what_is_no_language_model(graph: Graph, programs: Path) -> None:
    tokens, position = graph.inputs
    with pytest.raises(UnsupportedError, match=r"not \(tokens \[1, steps\], position \[1\]\)"):
        batch(replace(graph, inputs=(position, tokens)), 3)
    no_cache = replace(graph, nodes=tuple(node for node in graph.nodes if node.name != ATTENTION))
    with pytest.raises(UnsupportedError, match="it has no KV cache"):
        batch(no_cache, 3)
