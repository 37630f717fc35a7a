"""A graph and its calls -> lists of values, operators, nodes and calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pteron.errors import PteronError
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call
from pteron.ops.call import mutated_ids
from pteron.passes.resolve import resolve
from pteron.tools.graph_structure import family_of_operator
from pteron.tools.inspect.page.report import (
    ArgumentDetails,
    CallDetails,
    NodeDetails,
    OperatorDetails,
    ValueDetails,
)

UNKNOWN = "unknown"  # the family of unsupported operators


class OperatorTable:
    """Numbers operators in the order of their first use."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def entries(self) -> tuple[OperatorDetails, ...]:
        return tuple(map(_operator, self._places))


def _operator(name: str) -> OperatorDetails:
    known = OPERATORS.get(name)
    names = tuple(argument.name for argument in known.signature.arguments) if known else ()
    return OperatorDetails(name, family_of_operator(name) or UNKNOWN, names, known is not None)


def describe_nodes(graph: Graph, operators: OperatorTable) -> tuple[NodeDetails, ...]:
    """The graph's nodes. If all operators are known, in-place changes count as writes."""
    try:
        calls: Sequence[Call | None] = resolve(graph)
    except PteronError:
        calls = [None] * len(graph.nodes)
    return tuple(_node(node, call, operators) for node, call in zip(graph.nodes, calls, strict=True))


def _node(node: Node, call: Call | None, operators: OperatorTable) -> NodeDetails:
    *inputs, output = node.args
    reads, writes = _ids(inputs), _ids([output])
    if call is not None:
        writes = tuple(dict.fromkeys((*writes, *(tensor.id for tensor in call.mutated))))
    return NodeDetails(operators[node.name], tuple(map(_argument, node.args)), reads, writes)


def describe_calls(
    calls: Iterable[Call], once: Iterable[Call], operators: OperatorTable
) -> tuple[CallDetails, ...]:
    """The calls after rewrites; those in `once` depend only on constants."""
    first = set(once)
    return tuple(
        CallDetails(
            node=call.node.index,
            nodes=call.nodes,
            operator=operators[call.operator.name],
            arguments=tuple(map(_argument, (*call.inputs, *call.outputs))),
            reads=_ids(call.inputs),
            writes=tuple(dict.fromkeys((*_ids(call.outputs), *(tensor.id for tensor in call.mutated)))),
            is_once=call in first,
        )
        for call in calls
    )


def describe_values(
    graph: Graph, calls: Iterable[Call], dynamic: Mapping[int, tuple[int, ...]]
) -> tuple[tuple[ValueDetails, ...], tuple[Constant, ...]]:
    """The values of a graph and its calls in order of their first use, and their constants."""
    calls = tuple(calls)
    states = mutated_ids(calls)
    met: dict[int, Tensor | SymInt] = {}
    arguments = [value for node in graph.nodes for value in node.args]
    arguments += [value for call in calls for value in (*call.inputs, *call.outputs)]
    for value in (*graph.inputs, *graph.outputs, *arguments):
        for item in value.items if isinstance(value, ValueList) else (value,):
            if isinstance(item, (Tensor, SymInt)):
                met.setdefault(item.id, item)
    constants = dict.fromkeys(
        value.constant for value in met.values() if isinstance(value, Tensor) and value.constant is not None
    )
    places = {constant: index for index, constant in enumerate(constants)}
    values = []
    for value in met.values():
        if isinstance(value, SymInt):
            values.append(ValueDetails(value.id, None, (), (), None, False))
            continue
        place = places[value.constant] if value.constant is not None else None
        dims = dynamic.get(value.id, ())
        values.append(
            ValueDetails(value.id, str(value.dtype), value.shape_max, dims, place, value.id in states)
        )
    return tuple(values), tuple(constants)


def _ids(values: Iterable[Value]) -> tuple[int, ...]:
    items = (item for value in values for item in (value.items if isinstance(value, ValueList) else (value,)))
    return tuple(dict.fromkeys(item.id for item in items if isinstance(item, (Tensor, SymInt))))


def _argument(value: Value) -> ArgumentDetails:
    if isinstance(value, (Tensor, SymInt)):
        return {"value": value.id}
    if isinstance(value, ValueList):
        return [_argument(item) for item in value.items]
    if isinstance(value, tuple):
        return [_argument(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # not in JSON
    return value
