"""Nodes -> calls: find every node's operator, check the kinds of its arguments and the order of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pteron.families  # noqa: F401  # registers the operators
from pteron.dtypes import DType
from pteron.errors import GraphError, UnsupportedError
from pteron.families.exporter_removed import explained
from pteron.graph import Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import describe, tensors
from pteron.ops import OPERATORS, Call, Kind, Operator
from pteron.ops.call import mutated_ids
from pteron.ops.requirement import RequirementError
from pteron.ops.signature import conform


def missing_operators(graph: Graph) -> Counter[str]:
    """The operators of a graph that Pteron does not have, with how often each is used."""
    return Counter(node.name for node in graph.nodes if not is_available(node.name, graph.is_internal))


def is_available(name: str, to_internal: bool = False) -> bool:
    """Whether a graph may call an operator; some are only for Pteron's own graphs."""
    return name in OPERATORS and (to_internal or not OPERATORS[name].is_internal)


def resolve(graph: Graph) -> tuple[Call, ...]:
    """The graph's calls; all unsupported operators are reported at once."""
    missing = missing_operators(graph)
    if missing:
        listed = ", ".join(f"{explained(name)} ({count}x)" for name, count in sorted(missing.items()))
        raise UnsupportedError(f"{graph.name}: unsupported operators: {listed}")
    return tuple(_bind(graph, node) for node in graph.nodes)


def _bind(graph: Graph, node: Node) -> Call:
    operator = OPERATORS[node.name]
    signature = operator.signature
    expected = len(signature.arguments) + 1
    if len(node.args) != expected:
        raise GraphError(f"{graph.name}, {node}: expected {expected} arguments, found {len(node.args)}")
    *inputs, output = node.args
    try:
        bound = tuple(
            conform(argument, value)
            for argument, value in zip(signature.arguments, inputs, strict=True)
            if argument.kind != "ignored"
        )
    except RequirementError as error:
        raise GraphError(f"{graph.name}, {node}: {error}") from None
    call = Call(node, operator, bound, _outputs(graph, node, operator, output))
    for tensor in call.mutated:
        if call.reads.count(tensor) > 1:
            raise GraphError(f"{graph.name}, {node}: {tensor} is updated in place and also read")
    if operator.kind is Kind.PREPACK:
        _check_prepack(graph, call)
    return call


def _outputs(
    graph: Graph, node: Node, operator: Operator, value: Value
) -> tuple[Tensor | SymInt | None, ...]:
    arguments = operator.signature.outputs
    members = value.items if isinstance(value, ValueList) else (value,)
    if arguments[0].kind == "tensors":
        arguments = arguments * len(members)
    kinds = {"tensor": Tensor, "tensors": Tensor, "symint": SymInt}
    if len(members) != len(arguments) or not all(
        isinstance(member, kinds[argument.kind]) or (member is None and argument.optional)
        for member, argument in zip(members, arguments, strict=True)
    ):
        expected = ", ".join(map(str, operator.signature.outputs))
        raise GraphError(f"{graph.name}, {node}: expected the outputs ({expected}), found {describe(value)}")
    return members  # type: ignore[return-value]  # the kinds were checked just now


def _check_prepack(graph: Graph, call: Call) -> None:
    source, target = call.reads[0], call.writes[0]
    if source.constant is None:
        raise GraphError(f"{graph.name}, {call.node}: prepack of {source}, which is not a constant")
    if (source.shape_max, source.dtype) != (target.shape_max, target.dtype):
        raise GraphError(f"{graph.name}, {call.node}: prepack of {source} into {target}, which differs")


def check_constants(graph: Graph) -> None:
    """Raise a GraphError for a constant with integers beyond 32 bits, which the GPU does not have."""
    readers = [(f", {node}", argument) for node in graph.nodes for argument in node.args]
    found: dict[int, tuple[str, Tensor]] = {}
    for reader, value in (*readers, *(("", output) for output in graph.outputs)):
        for tensor in tensors(value):
            if tensor.dtype is DType.I64 and tensor.constant is not None and len(tensor.constant.data):
                found.setdefault(tensor.id, (reader, tensor))
    for reader, tensor in found.values():
        assert tensor.constant is not None
        elements = tensor.constant.numpy()
        low, high = int(elements.min()), int(elements.max())
        if low < -(1 << 31) or high >= 1 << 31:
            where = f"{graph.name}{reader}: the constant {tensor}"
            raise GraphError(f"{where} has integers from {low} to {high}; a GPU computes in 32 bits")


def check_order(graph: Graph, calls: tuple[Call, ...]) -> None:
    """Raise a GraphError for the first call that reads an unwritten tensor or writes a written one; no input
    may be a constant.

    Only an update may write a tensor again: a call that also reads it, or changes a constant or what a
    prepack made of one. Otherwise the first writer sizes the memory, so a second writer could exceed it."""
    for value in graph.inputs:
        if _is_constant(value):  # constant calls run before there are inputs
            raise GraphError(f"{graph.name}: the input {value} is a constant")
    known = {value.id for value in graph.inputs}
    prepacked: set[int] = set()
    for call in calls:
        is_prepack = call.operator.kind is Kind.PREPACK
        reads: tuple[Tensor | SymInt, ...] = (*call.reads, *call.symbols)
        for value in reads:
            if value.id not in known and not _is_constant(value):
                raise GraphError(f"{graph.name}, {call.node} reads {value} before anything wrote it")
        for output in call.outputs:
            if output is None:
                continue
            is_state = _is_constant(output) or (output.id in prepacked and not is_prepack)
            if output.id in known and output not in call.reads and not is_state:
                raise GraphError(f"{graph.name}, {call.node} writes {output}, which was written before")
            known.add(output.id)
            if is_prepack:
                prepacked.add(output.id)
    for output in graph.outputs:
        if output.id not in known and not _is_constant(output):
            raise GraphError(f"{graph.name}: nothing computes the output {output}")


def with_states(graph: Graph, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls with states in place of the constants from which they start: exporters give linear layers and
    convolutions their weights without a prepack. A GraphError for a call that would read the new value."""
    mutated = mutated_ids(calls)
    prepacks = [call for call in calls if call.operator.kind is Kind.PREPACK]
    pairs = [(call.reads[0], call.writes[0]) for call in prepacks]
    states = {start.id: state for start, state in pairs if state.id in mutated and start.id not in mutated}
    writers: dict[int, Node] = {}
    found = []
    for call in calls:
        is_prepack = call.operator.kind is Kind.PREPACK
        for start in () if is_prepack else (tensor for tensor in call.reads if tensor.id in states):
            state = states[start.id]
            if writer := writers.get(state.id):
                raise GraphError(
                    f"{graph.name}, {call.node} reads the state {state} as it was before {writer} wrote it; "
                    "update the buffer after its last use, by a node of its own: `buffer.copy_(new * 1.0)`"
                )
        found.append(call if is_prepack else replace(call, inputs=_replaced(call.inputs, states)))
        writers.update((tensor.id, call.node) for tensor in call.writes if not is_prepack)
    return tuple(found)


def _replaced(values: tuple[Value, ...], others: Mapping[int, Tensor]) -> tuple[Any, ...]:
    """The values with other tensors in place of these, in lists too."""
    return tuple(
        others.get(value.id, value)
        if isinstance(value, Tensor)
        else replace(value, items=_replaced(value.items, others))
        if isinstance(value, ValueList)
        else value
        for value in values
    )


def _is_constant(value: Tensor | SymInt) -> bool:
    return isinstance(value, Tensor) and value.constant is not None
