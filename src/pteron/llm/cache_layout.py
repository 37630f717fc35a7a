"""The layout of a KV cache. In: a method's graph. Out: bytes per token in each cache, or None if the method
has other state.

A cache has the shape [1, context, heads, width], one row per token. The token at position p writes row p and
reads no later row. So the rows before a position are the complete state of the sequence up to there, and can
be copied to another sequence or written to a file. Attention with a sliding window keeps all rows too. This
does not hold for ring buffers and other state.

Recurrent layers have a state of fixed size, which every token changes. A sequence cannot go back in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pteron.families.attention.sdpa import CACHES
from pteron.families.linear.lora import ROWS
from pteron.families.recurrent.recurrence import RECURRENT, state_of
from pteron.format.records import DelegateCall
from pteron.graph import Graph, SymInt, Tensor
from pteron.graph.values import numel, tensors
from pteron.ops import Call, Kind
from pteron.passes import resolve
from pteron.plan import Executable
from pteron.runtime import Method, Program

_INPUTS, _POSITION = 2, 1  # inputs of a language model: tokens, position


def recurrent_states(program: Program, method: Method) -> Sequence[int]:
    """The ids of recurrent states; a sequence without them can go back to any earlier position."""
    nodes = (node for graph in program.graphs(method.name) for node in graph.nodes)
    return tuple(state_of(node).id for node in nodes if node.name in RECURRENT)


def row_bytes(program: Program, method: Method, context: int) -> Mapping[int, int] | None:
    """Bytes of a row by the state's id. None if the method has other state, or the context is unknown."""
    delegate, record = method.sole_delegate, method.record
    if delegate is None or not context:
        return None
    (instruction,) = record.instructions
    is_whole = isinstance(instruction, DelegateCall) and instruction.args == (*record.inputs, *record.outputs)
    (graph,) = program.graphs(method.name)
    if not is_whole or len(graph.inputs) != _INPUTS:
        return None
    return of_graph(graph, delegate.executable, context)


def choice_state(graph: Graph) -> int | None:
    """The id of the state with the number of a sequence's adapter; None if the graph has no adapters."""
    first = graph.nodes[0] if graph.nodes else None
    if first is None or first.name != ROWS:
        return None
    (state,) = tensors(first.args[0])
    return state.id


def of_graph(graph: Graph, executable: Executable, context: int) -> dict[int, int] | None:
    """The same, for a graph with inputs (tokens, position)."""
    calls = [call for call in resolve(graph) if call.operator.kind is not Kind.PREPACK]  # initial contents
    position = graph.inputs[_POSITION]
    if isinstance(position, Tensor) and numel(position.shape_max) != 1:
        return None
    positions = {source.symbol for source in executable.sources if source.input == _POSITION}
    of_file = {tensor.id: tensor for call in calls for tensor in (*call.reads, *call.writes)}
    # Rewrites add states that the file does not have: block maxima of the logits, which live for one step.
    # The number of the adapter is set for each request.
    states = {
        id: spec for id, spec in executable.states.items() if id in of_file and id != choice_state(graph)
    }
    shapes = {id: of_file[id].shape_max for id in states}
    shaped = all(len(shape) == 4 and shape[0] == 1 and shape[1] >= context for shape in shapes.values())
    read = {tensor.id for tensor in graph.outputs if isinstance(tensor, Tensor)}
    used = all(_is_by_rows(call, id, positions) for call in calls for id in _touched(call, states))
    if not shaped or not used or read & states.keys():
        return None
    return {id: spec.bytes // shapes[id][1] for id, spec in states.items()}


def _touched(call: Call, states: Mapping[int, object]) -> Iterator[int]:
    return (tensor.id for tensor in (*call.reads, *call.writes) if tensor.id in states)


def _is_by_rows(call: Call, state: int, positions: set[int]) -> bool:
    """Whether a call uses a state as a KV cache: it writes rows from the position on, and reads no row after
    its own tokens."""
    names = [argument.name for argument in call.operator.signature.inputs]
    given = dict(zip(names, call.inputs, strict=True))
    start = given.get("start_pos")
    caches = [name for name, value in given.items() if isinstance(value, Tensor) and value.id == state]
    return (
        bool(caches)
        and all(name in CACHES.get(call.operator.name, ()) for name in caches)
        and all(not isinstance(value, Tensor) or value.id != state for value in call.outputs)
        and isinstance(start, SymInt)
        and start.id in positions
        and given.get("attn_mask") is None  # a non-causal mask may read any row
    )
