"""The layout of a KV cache. In: a method's graph. Out: the rows of each cache, or None if the method has
other state.

A cache has the shape [1, context, heads, width], one row per token. The token at position p writes row p and
reads no later row. So the rows before a position are the complete state of the sequence up to there, and can
be copied to another sequence or written to a file. The cache of attention with a sliding window may be a
ring, which has the rows of the last tokens only: the token at position p writes row p % rows. All rows of a
full ring are copied.

Any other state is recurrent: of fixed size, and changed by every token. A sequence cannot go back in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.families.attention.caches import find_caches
from pteron.families.linear.lora import ROWS
from pteron.families.recurrent.recurrence import RECURRENT, state_of
from pteron.format.records import DelegateCall
from pteron.graph import Graph, Tensor
from pteron.graph.values import ids_of, numel, tensors
from pteron.plan import Executable
from pteron.runtime import Method, Program

_INPUTS, _POSITION = 2, 1  # inputs of a language model: tokens, position


def recurrent_states(program: Program, method: Method) -> Sequence[int]:
    """The ids of recurrent states: all but KV caches. A sequence without them can go back to any earlier
    position."""
    found = []
    for graph, delegate in zip(program.graphs(method.name), method.delegates, strict=True):
        caches = find_caches(graph)
        found += [id for id in _stored_states(graph, delegate.executable) if id not in caches]
    return tuple(found)


def must_be_reset(program: Program, method: Method) -> bool:
    """Whether a recurrent state needs a reset before a sequence starts anew: Pteron's own operators begin
    with zeros at position 0, states that other nodes write keep their content."""
    nodes = (node for graph in program.graphs(method.name) for node in graph.nodes)
    begin_anew = {state_of(node).id for node in nodes if node.name in RECURRENT}
    return not begin_anew.issuperset(recurrent_states(program, method))


def _stored_states(graph: Graph, executable: Executable) -> dict[int, int]:
    """The bytes of the states that the file has, by id. Rewrites add others: block maxima of the logits,
    which live for one step. The number of the adapter is set for each request."""
    ids = set(ids_of(graph)) - {choice_state(graph)}
    return {id: spec.bytes for id, spec in executable.states.items() if id in ids}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a cache."""

    bytes: int  # of one
    ring: int = 0  # how many, if they are those of the last tokens; 0: there is one for each token

    def held(self, count: int, written: int) -> int:
        """The bytes of `count` tokens after `written` ones: of a ring all rows that are written."""
        return self.bytes * (min(written, self.ring) if self.ring else count)


@dataclass(frozen=True, slots=True)
class Ring:
    """A cache that has the rows of the last tokens only, and the tokens that attention sees of them."""

    rows: int
    window: int

    def has_window(self, position: int, written: int) -> bool:
        """Whether it has all that the token at a position sees, after `written` tokens."""
        return written <= self.rows or position - self.window + 1 >= written - self.rows


def rings(program: Program, method: Method, context: int) -> Sequence[Ring]:
    """The rings of a method, without those of the same size; none if they hold the context."""
    caches = (cache for graph in program.graphs(method.name) for cache in find_caches(graph).values())
    found = {Ring(cache.ring, cache.window or 0) for cache in caches if 0 < cache.ring < context}
    return tuple(sorted(found, key=lambda ring: ring.rows))


def row_layout(program: Program, method: Method, context: int) -> Mapping[int, Rows] | None:
    """The rows of each cache by the state's id. None if the method has other state, or the context is
    unknown."""
    delegate, record = method.sole_delegate, method.record
    if delegate is None or not context:
        return None
    (instruction,) = record.instructions
    is_sole = isinstance(instruction, DelegateCall) and instruction.args == (*record.inputs, *record.outputs)
    (graph,) = program.graphs(method.name)
    if not is_sole or len(graph.inputs) != _INPUTS:
        return None
    return of_graph(graph, delegate.executable, context)


def choice_state(graph: Graph) -> int | None:
    """The id of the state with the number of a sequence's adapter; None if the graph has no adapters."""
    first = graph.nodes[0] if graph.nodes else None
    if first is None or first.name != ROWS:
        return None
    (state,) = tensors(first.args[0])
    return state.id


def of_graph(graph: Graph, executable: Executable, context: int) -> dict[int, Rows] | None:
    """The same, for a graph with inputs (tokens, position)."""
    position = graph.inputs[_POSITION]
    if isinstance(position, Tensor) and numel(position.shape_max) != 1:
        return None
    positions = {source.symbol for source in executable.sources if source.input == _POSITION}
    caches = find_caches(graph)
    states = _stored_states(graph, executable)
    is_returned = states.keys() & {value.id for value in graph.outputs}
    if is_returned or any(id not in caches or any(caches[id].other_uses(positions)) for id in states):
        return None
    rows = {id: caches[id].tensor.shape_max[1] for id in states}
    if any(count < context and not caches[id].ring for id, count in rows.items()):
        return None
    return {id: Rows(size // rows[id], rows[id] if rows[id] < context else 0) for id, size in states.items()}
