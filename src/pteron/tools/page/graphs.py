"""A graph and its calls -> lists of values, operators, nodes and calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pteron.errors import PteronError
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call
from pteron.ops.call import mutated_ids
from pteron.passes.resolve import resolve
from pteron.tools.page.report import ArgumentInside, CallInside, NodeInside, OperatorInside, ValueInside

UNKNOWN = "unknown"  # the family of operators that none here has
_FAMILIES = "pteron.families."


class OperatorTable:
    """Operators by name, numbered as they are met."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def entries(self) -> tuple[OperatorInside, ...]:
        return tuple(map(_operator, self._places))


def family_of(name: str) -> str:
    """The family that defines an operator, by the folder of the function that computes it."""
    if name not in OPERATORS:
        return UNKNOWN
    compute: Any = OPERATORS[name].compute
    while isinstance(compute, partial):
        compute = compute.func
    module = str(compute.__module__)
    return module.removeprefix(_FAMILIES).split(".")[0] if module.startswith(_FAMILIES) else UNKNOWN


def _operator(name: str) -> OperatorInside:
    known = OPERATORS.get(name)
    names = tuple(argument.name for argument in known.signature.arguments) if known else ()
    return OperatorInside(name, family_of(name), names, known is not None)


def describe_nodes(graph: Graph, operators: OperatorTable) -> tuple[NodeInside, ...]:
    """The graph's nodes. What an operator changes in place is written too, where all operators are known."""
    try:
        calls: Sequence[Call | None] = resolve(graph)
    except PteronError:
        calls = [None] * len(graph.nodes)
    return tuple(_node(node, call, operators) for node, call in zip(graph.nodes, calls, strict=True))


def _node(node: Node, call: Call | None, operators: OperatorTable) -> NodeInside:
    *inputs, output = node.args
    reads, writes = _ids(inputs), _ids([output])
    if call is not None:
        writes = tuple(dict.fromkeys((*writes, *(tensor.id for tensor in call.mutated))))
    return NodeInside(operators[node.name], tuple(map(_argument, node.args)), reads, writes)


def describe_calls(
    calls: Iterable[Call], once: Iterable[Call], operators: OperatorTable
) -> tuple[CallInside, ...]:
    """The calls after rewrites; those of `once` depend on constants alone."""
    first = set(once)
    return tuple(
        CallInside(
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
) -> tuple[tuple[ValueInside, ...], tuple[Constant, ...]]:
    """The values of a graph and its calls in the order they are met, and the constants among them."""
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
            values.append(ValueInside(value.id, None, (), (), None, False))
            continue
        place = places[value.constant] if value.constant is not None else None
        dims = dynamic.get(value.id, ())
        values.append(
            ValueInside(value.id, str(value.dtype), value.shape_max, dims, place, value.id in states)
        )
    return tuple(values), tuple(constants)


def _ids(values: Iterable[Value]) -> tuple[int, ...]:
    items = (item for value in values for item in (value.items if isinstance(value, ValueList) else (value,)))
    return tuple(dict.fromkeys(item.id for item in items if isinstance(item, (Tensor, SymInt))))


def _argument(value: Value) -> ArgumentInside:
    if isinstance(value, (Tensor, SymInt)):
        return {"value": value.id}
    if isinstance(value, ValueList):
        return [_argument(item) for item in value.items]
    if isinstance(value, tuple):
        return [_argument(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    return value
