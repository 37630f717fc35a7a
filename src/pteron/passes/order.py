"""The order of a graph's calls: what is read was written, and everything is written once."""

from __future__ import annotations

from pteron.errors import GraphError
from pteron.graph import Graph, SymInt, Tensor
from pteron.ops import Call


def check_order(graph: Graph, calls: tuple[Call, ...]) -> None:
    """Raise a GraphError that names the first call that reads what nothing wrote, or writes what was written.
    No input is a constant.

    Only an update may write a tensor again: a call that reads it too, or changes a constant. Memory is sized
    by who writes a tensor first, so a second writer could leave it.
    """
    for value in graph.inputs:
        if _is_constant(value):  # what depends on constants alone is computed before there are inputs
            raise GraphError(f"{graph.name}: the input {value} is a constant")
    known = {value.id for value in graph.inputs}
    for call in calls:
        reads: tuple[Tensor | SymInt, ...] = (*call.reads, *call.symbols)
        for value in reads:
            if value.id not in known and not _is_constant(value):
                raise GraphError(f"{graph.name}, {call.node} reads {value} before anything wrote it")
        for output in call.outputs:
            if output is None:
                continue
            is_update = output in call.reads or _is_constant(output)
            if output.id in known and not is_update:
                raise GraphError(f"{graph.name}, {call.node} writes {output}, which was written before")
            known.add(output.id)
    for output in graph.outputs:
        if output.id not in known and not _is_constant(output):
            raise GraphError(f"{graph.name}: nothing computes the output {output}")


def _is_constant(value: Tensor | SymInt) -> bool:
    return isinstance(value, Tensor) and value.constant is not None
