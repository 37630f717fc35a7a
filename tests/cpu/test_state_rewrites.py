"""Rewrites where a state is in the middle of their patterns: each read sees the value that it saw before, and
no write is lost. Each tensor of graphs with all patterns becomes a state in turn, and is written once more at
the places among its uses. Joins merge neighbouring launches, so nothing is written between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fused_layer import ADD, MUL, VIEW
from sketch import Sketch
from test_expert_rewrites import COMBINE, ExpertsLayer

from pteron.families.attention.caches import CACHES, PREPACK
from pteron.format.program import read_program
from pteron.graph import Constant, Graph, Node, Tensor, Value
from pteron.graph.values import ids_of, tensors
from pteron.ops import Call
from pteron.ops.call import mutated_ids
from pteron.ops.rewrite import REWRITES
from pteron.passes.resolve import resolve, with_states
from pteron.passes.rewrite import rewrite_calls
from pteron.runtime.program import read_graphs

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = ["models/tiny_llama_q4", "models/tiny_llama_8da4w", "models/tiny_qwen3_fp32", "programs/vision"]
WRITE = "aten.mul.Tensor"


def of_file(name: str) -> Graph:
    """The largest graph of a file; of a language model from behind its first attention on."""
    file = read_program(FIXTURES / f"{name}.pte")
    graphs = [graph for record in file.methods for graph in read_graphs(file, record, {})]
    graph = max(graphs, key=lambda graph: len(graph.nodes))
    first = next((node.index for node in graph.nodes if node.name in CACHES), -1)
    nodes = [node for node in graph.nodes if node.index > first or node.name == PREPACK]
    made = {tensor.id for node in nodes for tensor in tensors(node.args[-1])}
    given = {tensor for node in nodes for value in node.args[:-1] for tensor in tensors(value)}
    known = made.union(value.id for value in graph.inputs)
    inputs = [tensor for tensor in given if tensor.constant is None and tensor.id not in known]
    return replace(graph, nodes=tuple(nodes), inputs=(*graph.inputs, *inputs))


def experts() -> Graph:
    layer = ExpertsLayer()
    hidden = layer.gate(layer.expert(layer.x, 96), layer.expert(layer.x, 96))
    down, out = layer.expert(hidden, 64), layer.tensor(3, 64)
    layer.node(COMBINE, down, layer.weights, out)
    total = layer.apply(ADD, layer.view(out, 1, 3, 64), layer.given, 1)
    return layer.graph([layer.given], [total])


def attention() -> Graph:
    """softmax(q · kᵀ / 2) · v of three heads, as encoders spell it out."""
    sketch, heads, steps, width = Sketch(), 3, 5, 4
    x = [sketch.tensor(1, steps, heads * width) for _ in range(3)]

    def made(name: str, *arguments: Value, shape: tuple[int, ...]) -> Tensor:
        out = sketch.tensor(*shape)
        sketch.node(name, *arguments, out)
        return out

    def viewed(of: Tensor, *shape: int) -> Tensor:
        return made(VIEW, of, shape, shape=shape)

    def permuted(of: Tensor, *dims: int) -> Tensor:
        shape = tuple(of.shape_max[dim] for dim in dims)
        return made("aten.permute_copy.default", of, dims, shape=shape)

    q, k, v = (permuted(viewed(each, 1, steps, heads, width), 0, 2, 1, 3) for each in x)
    q, v = viewed(q, heads, steps, width), viewed(v, heads, steps, width)
    k = viewed(permuted(k, 0, 1, 3, 2), heads, width, steps)
    scores = viewed(made("aten.bmm.default", q, k, shape=(heads, steps, steps)), 1, heads, steps, steps)
    scaled = made(MUL, scores, sketch.constant(), shape=scores.shape_max)
    weights = made("aten._softmax.default", scaled, -1, False, shape=scores.shape_max)
    values = made("aten.bmm.default", viewed(weights, heads, steps, steps), v, shape=(heads, steps, width))
    by_steps = permuted(viewed(values, 1, heads, steps, width), 0, 2, 1, 3)
    return sketch.graph(x, [viewed(by_steps, 1, steps, heads * width)])


GRAPHS: dict[str, Callable[[], Graph]] = {
    **{name: partial(of_file, name) for name in FILES},
    "experts": experts,
    "attention": attention,
}
MOST = 3  # places of a write among a tensor's uses


# Graphs with states --------------------------------------------------------------------------------


def with_writes(graph: Graph) -> Iterator[Graph]:
    """The graph with each of its tensors as a state: as it is, and with one more write."""
    nodes = graph.nodes
    known = mutated_ids(with_states(graph, resolve(graph)))
    results = {tensor for node in nodes if node.name == PREPACK for tensor in tensors(node.args[-1])}
    read: dict[Tensor, list[int]] = {}
    made = {value: -1 for value in graph.inputs if isinstance(value, Tensor)}
    for place, node in enumerate(nodes):
        for tensor in (each for value in node.args[:-1] for each in tensors(value)):
            read.setdefault(tensor, []).append(place)
        made |= dict.fromkeys(tensors(node.args[-1]), place)
    for tensor, places in read.items():
        if tensor.id in known or tensor in results or nodes[places[0]].name == PREPACK:
            continue
        first = made.get(tensor, places[0] - 1)
        spread = range(first + 1, places[-1] + 2)
        for place in spread if len(spread) < MOST else spread[:: -(-len(spread) // MOST)]:
            yield with_state(graph, tensor, [*nodes[:place], Node(0, WRITE, (tensor,) * 3), *nodes[place:]])
        if first >= 0:
            yield with_state(graph, tensor, list(nodes))


def with_state(graph: Graph, tensor: Tensor, nodes: Sequence[Node]) -> Graph:
    """The graph of these nodes, in which a tensor is a state: a written constant, or what a prepack makes."""
    if tensor.constant is None:
        data = memoryview(bytes(1))
        constant = Constant("state", tensor.dtype, tensor.shape_max, data)
        start = Tensor(1 + max(ids_of(graph)), tensor.dtype, tensor.shape_max, constant)
        nodes = [Node(0, PREPACK, (start, tensor)), *nodes]
    inputs = tuple(value for value in graph.inputs if value is not tensor)
    numbered = tuple(replace(node, index=index) for index, node in enumerate(nodes))
    return replace(graph, nodes=numbered, inputs=inputs)


# What each call sees ----------------------------------------------------------------------------------


def check(graph: Graph) -> None:
    before = with_states(graph, resolve(graph))
    after = rewrite_calls(graph, before, list(REWRITES))
    for state in mutated_ids(before):
        check_state(state, before, after)


def check_state(state: int, before: Sequence[Call], after: Sequence[Call]) -> None:
    """Calls see the state after the same writes as before."""
    writers = [call.node.index for call in before if state in call.written_ids]
    seen = {call.node.index: sum(writer < call.node.index for writer in writers) for call in before}
    readers = {call.node.index for call in before if state in call.read_ids}
    done = 0
    for call in after:
        own = [writer for writer in writers if writer in call.nodes]
        for node in readers.intersection(call.nodes):  # what it writes itself, it need not read
            assert seen[node] == done if state in call.read_ids else writers[seen[node] - 1] in own, str(call)
        assert not own or state in call.written_ids, f"{call} does not write %{state}"
        assert own == writers[done : done + len(own)], f"{call} writes %{state} too early or late"
        assert state not in call.read_ids or readers.intersection(call.nodes), f"{call} reads %{state}"
        done += len(own)
    assert done == len(writers), f"a write of %{state} is lost"


@pytest.mark.rewrites
@pytest.mark.parametrize("name", GRAPHS)
def test_states_among_fused_calls(name: str) -> None:
    graph = GRAPHS[name]()
    calls = resolve(graph)
    assert len(rewrite_calls(graph, calls, list(REWRITES))) < len(calls)
    for changed in with_writes(graph):
        check(changed)
