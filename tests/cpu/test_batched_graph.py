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
from pteron.families.attention.caches import CACHES, caches_of, prepacked
from pteron.graph import Constant, Graph, Node, Tensor, Value, ValueList
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
    assert {states[id].bytes for id in made.caches} == {
        4 * math.prod((11, 64, *cache_of(graph).shape_max[2:]))
    }
    assert all(states[id].bytes == 4 * 11 for id in (made.tokens, made.positions))
    assert made.capacity == 64
    compiled = Compiled(prepared, Target(is_cpu=False, workgroup_bytes_max=49152))
    for rows in (1, 5, 11):
        plan = compiled.plan(((rows,), None), {context.id: 40})
        assert plan.shapes[logits.id] == (rows, 512)
        assert plan.numbers({context.id: 64}) is not None  # of one bucket


def test_the_capacity_is_that_of_the_smallest_cache(graph: Graph) -> None:
    attention = next(node for node in graph.nodes if node.name == ATTENTION)
    of_first = {value.id for value in attention.args[3:5] if isinstance(value, Tensor)}
    of_first |= {source.id for source, made in prepacked(graph) if made.id in of_first}

    def shorter(value: Value) -> Value:
        if not isinstance(value, Tensor) or value.id not in of_first:
            return value
        shape = (1, 40, *value.shape_max[2:])
        constant = value.constant and replace(
            value.constant, shape=shape, data=value.constant.data[: 4 * math.prod(shape)]
        )
        return replace(value, shape_max=shape, constant=constant)

    nodes = [replace(node, args=tuple(map(shorter, node.args))) for node in graph.nodes]
    assert (batch(graph, 3).capacity, batch(replace(graph, nodes=tuple(nodes)), 3).capacity) == (64, 40)


def test_caches_are_known_by_name(graph: Graph) -> None:
    """All that an operator over caches writes to is one; a node gives them where its signature says."""
    for name, caches in CACHES.items():
        arguments = OPERATORS[name].signature.arguments
        assert {argument.name for argument in arguments if argument.mutated} <= {*caches}
        assert {*caches} <= {argument.name for argument in arguments if argument.kind == "tensor"}
    attention = next(node for node in graph.nodes if node.name == ATTENTION)
    assert caches_of(attention) == [*attention.args[3:5]]
    assert caches_of(next(node for node in graph.nodes if node.name == NORM)) == []


def cache_of(graph: Graph) -> Tensor:
    """The keys' cache of the first attention."""
    cache = next(node for node in graph.nodes if node.name == ATTENTION).args[3]
    assert isinstance(cache, Tensor)
    return cache


def position_of(graph: Graph) -> Value:
    return next(node for node in graph.nodes if node.name == SLICE).args[2]


def filled(cache: Tensor) -> Tensor:
    assert cache.constant is not None
    ones = memoryview(b"\1" * len(cache.constant.data))
    return replace(cache, constant=replace(cache.constant, data=ones))


def call(name: str, *args: Value) -> Callable[[Node], Node]:
    """A change to a call of another operator on the node's input, with its output."""
    return lambda node: replace(node, name=name, args=(node.args[0], *args, node.args[-1]))


def call_of_itself(name: str, *args: Value) -> Callable[[Node], Node]:
    """A change to a call of another operator on the node's input and the same once more."""
    return lambda node: replace(node, name=name, args=(node.args[0], node.args[0], *args, node.args[-1]))


def joined(node: Node) -> Node:
    x = node.args[0]
    assert isinstance(x, Tensor)
    return replace(node, name="aten.cat.default", args=(ValueList(9001, (x, x)), 1, node.args[-1]))


def without_attention(graph: Graph) -> Graph:
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name != ATTENTION))


ROWS = Tensor(9000, DType.F32, (31, 64), Constant("rows", DType.F32, (31, 64), memoryview(bytes(31 * 256))))
REFUSED: list[tuple[str, Callable[[Graph], Graph]]] = [
    (r"batched: node 17 sdpa_with_kv_cache.*a mask", lambda g: changed(g, ATTENTION, argument(7, ROWS))),
    ("the cache of several attentions", lambda g: changed(g, ATTENTION, argument(4, cache_of(g)))),
    ("does not begin as zeros", lambda g: changed(g, ATTENTION, argument(3, filled(cache_of(g))))),
    (
        r"node 8 aten._softmax.default: it has no batching rule",
        lambda g: changed(g, NORM, call("aten._softmax.default", 1, False)),
    ),
    (
        r"linear_q4gsw.*it adds rows up",
        lambda g: changed(g, NORM, call("aten.permute_copy.default", (0, 2, 1))),
    ),
    ("not the last", lambda g: changed(g, SELECT, argument(2, 3))),
    ("has a value for every step", lambda g: changed(g, ADD, argument(1, ROWS))),
    ("it takes the position", lambda g: changed(g, SLICE, argument(3, position_of(g)))),
    ("which differs from sequence to sequence", lambda g: changed(g, NORM, argument(2, position_of(g)))),
    (r"not \(tokens \[1, steps\], position \[1\]\)", lambda g: replace(g, inputs=g.inputs[::-1])),
    ("it has no KV cache", without_attention),
    ("rms_norm.*it norms over rows", lambda g: changed(g, NORM, argument(1, ROWS))),
    (
        "layer_norm.*it norms over rows",
        lambda g: changed(g, NORM, call("aten.native_layer_norm.default", (31, 64), ROWS, ROWS, 1e-5)),
    ),
    ("it multiplies rows by rows", lambda g: changed(g, NORM, call_of_itself("aten.mm.default"))),
    (
        "linear.*its weights differ from row to row",
        lambda g: changed(g, NORM, call("aten.linear.default", position_of(g), None)),
    ),
    ("are not in the first dim", lambda g: changed(g, NORM, call_of_itself("pteron.combine.default"))),
    (
        "it looks at several rows at once",
        lambda g: changed(g, NORM, call("torchao.choose_qparams_affine.default", "ASYMMETRIC", (1, 31, 64))),
    ),
    (
        "its table differs from row to row",
        lambda g: changed(g, NORM, call("aten.embedding.default", g.inputs[0], -1, False, False)),
    ),
    (
        "it does not keep rows together",
        lambda g: changed(g, NORM, call("aten.view_copy.default", (-1, 31, 64))),
    ),
    (
        "it splits rows apart",
        lambda g: changed(g, NORM, call("aten.split_with_sizes_copy.default", (15, 16), 1)),
    ),
    ("it joins rows", lambda g: changed(g, NORM, joined)),
    ("it takes some steps of all", lambda g: changed(g, NORM, call(SLICE, 1, 0, 5, 1))),
    ("it attends from", lambda g: changed(g, ATTENTION, argument(5, 3))),
]


@pytest.mark.parametrize(("message", "change"), REFUSED, ids=[message for message, _ in REFUSED])
def test_what_cannot_be_batched(message: str, change: Callable[[Graph], Graph], graph: Graph) -> None:
    with pytest.raises(UnsupportedError, match=message):
        batch(change(graph), 3)
