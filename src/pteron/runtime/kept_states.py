"""States of compiled modules. In: a program of `pteron.compile`, in which each buffer that the module writes
is an input (`state.NAME`) and an output. Out: the same program, in which they are states.

If one delegate alone reads a state and computes its new value, it becomes a state of its graph: a prepack
makes it of its first value, and a last node writes it. Any other is a mutable tensor of the method: `carried`
in its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

import numpy as np

from pteron.errors import FormatError
from pteron.families.attention.caches import PREPACK
from pteron.format.program import STATE_KEY
from pteron.format.records import DelegateCall, EValue, JumpFalseCall, MethodRecord, ProgramFile, TensorRecord
from pteron.format.source import contents
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.graph.values import ids_of
from pteron.host.operator import HostOperator
from pteron.ops.operand import HostArray
from pteron.runtime.checks import check_method, describe_record, read_by, tensors
from pteron.runtime.method_memory import views_of_memory, written_by


def keep_states(
    file: ProgramFile, record: MethodRecord, operators: Sequence[HostOperator], graphs: Sequence[Graph]
) -> tuple[MethodRecord, list[Graph]]:
    """The method and its graphs, with states in place of `state.*`."""
    kept = list(graphs)
    count = len(file.metadata.get("states", ())) if record.input_ports else 0  # which the reader has checked
    if not count:
        return record, kept
    check_method(f"{file.name}, method {record.name}", record, operators, graphs)
    pairs = list(zip(record.inputs[:count], record.outputs[:count], strict=True))
    firsts = {state: first_value(file, record, index) for index, (state, _) in enumerate(pairs)}
    for state, new in pairs:
        if describe_record(record.values[new]) != describe_record(record.values[state]):
            raise FormatError(f"{file.name}: the state %{state} and its new value %{new} differ")
    record = replace(
        record,
        inputs=record.inputs[count:],
        outputs=record.outputs[count:],
        input_ports=record.input_ports[count:],
        output_ports=record.output_ports[count:],
        values=_with_data(record, firsts),
        carried=tuple(pairs),
    )
    shown = {source for views in views_of_memory(record, operators, kept).values() for _, source in views}
    for state, new in pairs:
        place = None if shown & {state, new} else _place(record, operators, kept, state, new)
        initial = None if place is None else _converted(firsts[state], place)
        if place is not None and initial is not None:
            kept[place.call.delegate] = _with_state(place, initial)
            record = _without(record, place, state, new)
    return record, kept


def first_value(file: ProgramFile, record: MethodRecord, index: int) -> HostArray:
    """The first value of a state: the stored bytes, or zeros."""
    tensor, stored = record.values[record.inputs[index]], file.named_data.get(STATE_KEY.format(index))
    if not isinstance(tensor, TensorRecord):
        raise FormatError(f"{file.name}: state {index} is not a tensor")
    if stored is None:
        return np.zeros(tensor.sizes, tensor.dtype.numpy)
    needed = prod(tensor.sizes) * tensor.dtype.itemsize
    if len(stored) != needed:
        raise FormatError(f"{file.name}: state {index} has {len(stored)} bytes, expected {needed}")
    return np.frombuffer(contents(stored), tensor.dtype.numpy).reshape(tensor.sizes)


def _with_data(record: MethodRecord, firsts: dict[int, HostArray]) -> tuple[EValue, ...]:
    """The values of a method, where these are mutable tensors with first values."""
    values = list(record.values)
    for id, first in firsts.items():
        tensor = cast(TensorRecord, values[id])
        stored = np.ascontiguousarray(first.transpose(tensor.dim_order) if tensor.sizes else first)
        values[id] = replace(tensor, data=_bytes(stored), is_mutable=True)
    return tuple(values)


def _bytes(array: HostArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


# States of a graph --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """The only call that uses a state, and the positions of the state and of its new value there."""

    call: DelegateCall
    graph: Graph
    taken: int  # among the graph's inputs
    given: int  # among its outputs
    is_shown: bool  # the method returns the new value, or another call reads it

    @property
    def state(self) -> Tensor:
        return cast(Tensor, self.graph.inputs[self.taken])

    @property
    def new(self) -> Tensor:
        return cast(Tensor, self.graph.outputs[self.given])


def _place(
    record: MethodRecord, operators: Sequence[HostOperator], graphs: Sequence[Graph], state: int, new: int
) -> _Place | None:
    """Where a state can become one of a graph, or None."""
    calls = record.instructions
    users = [call for call in calls if state in tensors(record, read_by(call))]
    makers = [call for call in calls if new in written_by(record, call, operators, graphs)]
    results = [*record.outputs, *(result for _, result in record.carried)]
    has_loops = any(isinstance(call, JumpFalseCall) for call in calls)
    if len(users) != 1 or users != makers or has_loops or state in results:
        return None
    (call,) = users
    graph = graphs[call.delegate] if isinstance(call, DelegateCall) else None
    if graph is None or not isinstance(call, DelegateCall):
        return None
    count = len(graph.inputs)
    if call.args.count(state) != 1 or call.args.count(new) != 1 or state not in call.args[:count]:
        return None
    is_read = any(new in tensors(record, read_by(other)) for other in calls if other is not call)
    place = _Place(
        call,
        graph,
        call.args.index(state),
        call.args.index(new) - count,
        is_shown=is_read or results.count(new) > 1,
    )
    before, after = graph.inputs[place.taken], graph.outputs[place.given]
    fits = isinstance(before, Tensor) and isinstance(after, Tensor) and after not in graph.inputs
    return place if fits and (place.state.dtype, place.state.shape_max) == _kind(place.new) else None


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape_max


def _converted(first: HostArray, place: _Place) -> HostArray | None:
    """The first value in the type of the graph; None if it has integers that the type does not have."""
    dtype = place.state.dtype
    if first.shape != place.state.shape_max:
        return None
    converted = first.astype(dtype.numpy)
    return converted if dtype.is_float or np.array_equal(converted, first) else None


def _with_state(place: _Place, initial: HostArray) -> Graph:
    """The graph with a state in place of its input, and a node that writes it."""
    graph, state = place.graph, place.state
    constant = Constant(f"state %{state.id}", state.dtype, state.shape_max, _bytes(initial))
    start = Tensor(1 + max(ids_of(graph)), state.dtype, state.shape_max, constant)
    number = 1 + max((node.index for node in graph.nodes), default=-1)
    first = Node(number, PREPACK, (start, state))
    last = Node(number + 1, "aten.clone.default", (place.new, None, state))
    outputs = [each for at, each in enumerate(graph.outputs) if at != place.given or place.is_shown]
    inputs = [each for each in graph.inputs if each is not state]
    return replace(graph, nodes=(first, *graph.nodes, last), inputs=tuple(inputs), outputs=tuple(outputs))


def _without(record: MethodRecord, place: _Place, state: int, new: int) -> MethodRecord:
    """The method without a state that its delegate has."""
    left = {state} if place.is_shown else {state, new}
    args = tuple(id for id in place.call.args if id not in left)
    changed = replace(place.call, args=args)
    return replace(
        record,
        instructions=tuple(changed if call is place.call else call for call in record.instructions),
        carried=tuple(pair for pair in record.carried if pair[0] != state),
    )
