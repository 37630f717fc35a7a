"""Which states are KV caches with one row per token: those of the tiny models, but no state that has any
other use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pteron
from pteron import Device
from pteron.graph import Graph, Node, SymInt, Tensor, Value
from pteron.llm import LLM
from pteron.llm.cache.layout import Rows, of_graph, row_layout
from pteron.plan import Executable

ATTENTION = "sdpa_with_kv_cache.default"
KEY_CACHE, START, SEQ_LEN, MASK, OUT = 3, 5, 6, 7, -1  # of its arguments
CONTEXT = 64


@pytest.fixture
def executable(llm: LLM) -> Executable:
    assert llm.model.delegate is not None
    return llm.model.delegate.executable


@pytest.fixture
def graph(llm: LLM) -> Graph:
    (graph,) = llm.model.program.graphs("forward")
    return graph


def attention(graph: Graph) -> Node:
    return next(node for node in graph.nodes if node.name == ATTENTION)


def changed(graph: Graph, **arguments: Value) -> Graph:
    """The graph with other arguments of its first attention."""
    places = {"query": 0, "start": START, "mask": MASK, "key_cache": KEY_CACHE}
    node = attention(graph)
    args = list(node.args)
    for name, value in arguments.items():
        args[places[name]] = value
    new = replace(node, args=tuple(args))
    return replace(graph, nodes=tuple(new if each is node else each for each in graph.nodes))


def with_node(graph: Graph, name: str, *args: Value) -> Graph:
    return replace(graph, nodes=(*graph.nodes, Node(len(graph.nodes), name, args)))


def cache(graph: Graph) -> Tensor:
    found = attention(graph).args[KEY_CACHE]
    assert isinstance(found, Tensor)
    return found


def like(tensor: Tensor) -> Tensor:
    return Tensor(9999, tensor.dtype, tensor.shape_max)


def test_as_it_is(graph: Graph, executable: Executable) -> None:
    found = of_graph(graph, executable, CONTEXT)
    assert found == {id: Rows(spec.bytes // CONTEXT) for id, spec in executable.states.items()}
    assert len(found) == 4
    assert of_graph(graph, executable, CONTEXT - 1) == found  # a cache may have more rows than are used
    assert of_graph(graph, executable, CONTEXT + 1) is None


OTHERS: dict[str, Callable[[Graph], Graph]] = {
    "a place that is no position": lambda graph: changed(graph, start=0),
    "another live integer": lambda graph: changed(graph, start=SymInt(9998)),
    "a mask": lambda graph: changed(graph, mask=attention(graph).args[0]),
    "it is the query too": lambda graph: changed(graph, query=cache(graph)),
    "another node reads it": lambda graph: with_node(
        graph, "aten.clone.default", cache(graph), None, like(cache(graph))
    ),
    "a view of it is read": lambda graph: with_node(
        graph, "aten.view_copy.default", cache(graph), cache(graph).shape_max, like(cache(graph))
    ),
    "it leaves the graph": lambda graph: replace(graph, outputs=(*graph.outputs, cache(graph))),
    "several positions": lambda graph: replace(
        graph,
        inputs=(graph.inputs[0], replace(graph.inputs[1], shape_max=(2,))),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("how", OTHERS)
def test_used_in_another_way(graph: Graph, executable: Executable, how: str) -> None:
    assert of_graph(OTHERS[how](graph), executable, CONTEXT) is None


@pytest.mark.parametrize("shape", [(2, CONTEXT, 2, 8), (CONTEXT, 2, 16), (1, 2, CONTEXT, 16)])
def test_caches_of_other_shapes(graph: Graph, executable: Executable, shape: tuple[int, ...]) -> None:
    other = replace(cache(graph), shape_max=shape)  # of the same name
    assert of_graph(changed(graph, key_cache=other), executable, CONTEXT) is None


@pytest.mark.parametrize(
    "name",
    ["mutable_buffer", "mutable_buffer_written", "update_cache", "attention_cache", "mutable_buffer_host"],
)
def test_programs_that_are_no_language_models(device: Device, programs: Path, name: str) -> None:
    with pteron.load(programs / f"{name}.pte", device=device) as program:
        assert row_layout(program, program["forward"], 4) is None
