"""Graph of a language model for one sequence -> graph for batched decode: a row is the next token of a
sequence.

Enters: a graph (tokens [1, steps], position [1]) -> logits with KV caches or recurrent states. Leaves: a
graph (slots [rows], context) -> logits [rows, vocabulary], with states for all sequences: the caches and
recurrent states [slots, ...] under the same ids, the next token and the position of every slot. So weights
are read once for all rows. A plan depends on the number of rows; `context` is the number of keys of the
longest sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pteron.passes.batched.positions
import pteron.passes.batched.row_wise  # noqa: F401  # they register the rules
from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.families.attention.caches import PREPACK, caches_of, find_caches, prepacked
from pteron.families.linear.lora import ROWS
from pteron.families.recurrent.recurrence import RECURRENT, state_of
from pteron.graph import Graph, Node, SymInt, Tensor, ValueList
from pteron.graph.values import numel, tensors
from pteron.passes.batched.builder import RULES, BatchedGraphBuilder, NotBatchableError, refuse_unless

_ATTENTION = ("sdpa_with_kv_cache.default", "pteron.attention.default")


@dataclass(frozen=True, slots=True, eq=False)
class BatchedGraph:
    """The batched graph, and the ids of its states."""

    graph: Graph
    slots: int
    caches: tuple[int, ...]  # [slots, ...], and recurrent states
    tokens: int  # [slots]: the next token of each
    positions: int  # [slots]: where it goes
    capacity: int  # tokens that every cache holds; 0: rings and recurrent states hold any number


def batch(graph: Graph, slots: int) -> BatchedGraph:
    """The graph for up to `slots` rows, or an UnsupportedError with the reason."""
    try:
        return _batched(graph, slots)
    except NotBatchableError as error:
        raise UnsupportedError(f"{graph.name} cannot be batched: {error}") from None


def consecutive_rows(graph: Graph, rows: int) -> tuple[Graph, tuple[int, ...]]:
    """The graph over up to `rows` consecutive tokens of one sequence, with the logits of each, and the ids of
    its caches: (tokens [1, rows], places [rows, 2], context) -> logits [rows, vocabulary]. A place is
    (position, 0), or (-1, -1) for padding."""
    try:
        ids, caches = _tokens(graph), _caches(graph)
        builder = _builder(graph, rows, caches, slots=1)
        tokens = builder.give_rows(ids, 1)
        inputs = (tokens, builder.places, builder.context)
        return _finish(builder, "in consecutive rows", inputs), tuple(builder.caches)
    except NotBatchableError as error:
        raise UnsupportedError(f"{graph.name} cannot run in rows: {error}") from None


def _batched(graph: Graph, slots: int) -> BatchedGraph:
    ids, caches = _tokens(graph), _caches(graph)
    builder = _builder(graph, slots, caches, slots)
    tokens, positions = (builder.zeros(builder.new_id(), DType.I32, (slots,)) for _ in range(2))
    chosen = builder.new(DType.I32, (slots,))
    results = ValueList(builder.new_id(), (builder.give_rows(ids, 1), builder.places))
    builder.emit("pteron.locate_rows", chosen, tokens, positions, results)
    made = _finish(builder, "in rows", (chosen, builder.context))
    rows = [cache.tensor.shape_max[1] for cache in find_caches(graph).values() if not cache.ring]
    capacity = min(rows, default=0)
    return BatchedGraph(made, slots, tuple(builder.caches), tokens.id, positions.id, capacity)


def _builder(graph: Graph, rows: int, caches: Mapping[int, Tensor], slots: int) -> BatchedGraphBuilder:
    """A builder of a graph for `rows` rows, with caches of `slots` sequences."""
    builder = BatchedGraphBuilder(graph, rows)
    for id, cache in caches.items():
        builder.caches[id] = builder.zeros(id, cache.dtype, (slots, *cache.shape_max[1:]))
    for node in graph.nodes:
        if node.name == ROWS:  # the number of each sequence's adapter
            (choice,) = tensors(node.args[0])
            builder.caches[choice.id] = builder.zeros(choice.id, choice.dtype, (slots, *choice.shape_max[1:]))
    builder.context, builder.places = SymInt(builder.new_id()), builder.new(DType.I32, (rows, 2))
    return builder


def _finish(builder: BatchedGraphBuilder, suffix: str, inputs: tuple[Tensor | SymInt, ...]) -> Graph:
    graph = builder.graph
    for node in graph.nodes:
        _take(builder, node)
    logits = graph.outputs[0] if graph.outputs else None
    if not isinstance(logits, Tensor) or not builder.has_rows(logits):
        raise NotBatchableError("its first output has no rows")
    output = builder.now(logits)
    assert isinstance(output, Tensor)
    return Graph(f"{graph.name} {suffix}", tuple(builder.nodes), inputs, (output,), True)


def _take(builder: BatchedGraphBuilder, node: Node) -> None:
    """Add the nodes that replace one node."""
    output = node.args[-1]
    if node.name == PREPACK and isinstance(output, Tensor) and output.id in builder.caches:
        return  # it initialises a cache with zeros
    rule = RULES.get(node.name)
    if (
        not isinstance(output, SymInt)
        and node.name not in _ATTENTION
        and node.name not in RECURRENT
        and all(map(builder.is_fixed, node.args[:-1]))
    ):
        builder.keep(node)  # the same for all rows
        return
    try:
        if rule is None:
            raise NotBatchableError("it has no batching rule")
        rule(builder, node)
    except NotBatchableError as error:
        raise NotBatchableError(f"node {node.index} {node.name}: {error}") from None


def _tokens(graph: Graph) -> Tensor:
    """The input of tokens, of a graph of tokens and a position."""
    if len(graph.inputs) == 2:
        ids, position = graph.inputs
        if (
            isinstance(ids, Tensor)
            and isinstance(position, Tensor)
            and len(ids.shape_max) == 2
            and ids.shape_max[0] == 1
            and numel(position.shape_max) == 1
        ):
            return ids
    shown = ", ".join(map(str, graph.inputs))
    raise NotBatchableError(f"it takes ({shown}), not (tokens [1, steps], position [1])")


def _caches(graph: Graph) -> dict[int, Tensor]:
    """The caches and recurrent states by id: all start as zeros and hold one sequence."""
    packed = {result.id: source.constant for source, result in prepacked(graph)}
    found: dict[int, Tensor] = {}
    for node in graph.nodes:
        states = [state_of(node)] if node.name in RECURRENT else []
        for cache in (*_of_attention(node), *states):
            if cache.id in found:
                raise NotBatchableError(f"{cache} is the cache of several attentions")
            constant = packed.get(cache.id, cache.constant)
            is_keyed = cache in states or len(cache.shape_max) == 4
            if constant is None or not is_keyed or cache.shape_max[0] != 1:
                raise NotBatchableError(f"{cache} is not a cache of one sequence that the graph keeps")
            if constant.bytes().any():
                raise NotBatchableError(f"the cache {cache} does not begin as zeros")
            found[cache.id] = cache
    if not found:
        raise NotBatchableError("it has no KV cache")
    for node in graph.nodes:
        for tensor in tensors(node.args[-1]) if node.name != PREPACK else ():
            refuse_unless(tensor.id not in packed or tensor.id in found, f"{tensor} is a state, but no cache")
    return found


def _of_attention(node: Node) -> list[Tensor]:
    return caches_of(node) if node.name in _ATTENTION else []
