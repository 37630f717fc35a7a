"""The calls of a plan -> steps: the smallest units whose inputs and outputs can be observed, with their
launches.

A step is one call, or several if a join merged the last launch of one with the first of the next, or if one
passes the next a tensor that no node of the graph has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pteron.graph import Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import tensors
from pteron.ops import Call, Kind
from pteron.plan import Plan


@dataclass(frozen=True)
class Step:
    """Calls that run together, and their launches [first, last)."""

    calls: tuple[Call, ...]
    first: int = 0
    last: int = 0
    left_out: tuple[Node, ...] = ()  # nodes that rewrites made unnecessary for these calls

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it computes, in order."""
        found = {node.index: node for call in self.calls for node in nodes_of(call)}
        found |= {node.index: node for node in self.left_out}
        return tuple(found[index] for index in sorted(found))

    @property
    def signature(self) -> tuple[object, ...]:
        """Differs from a step that other rewrites and joins made."""
        indices = tuple(node.index for node in self.nodes)
        return indices, tuple(call.operator.name for call in self.calls), self.last - self.first

    @property
    def ran(self) -> str:
        return " + ".join(call.operator.name for call in self.calls)

    @property
    def is_on_host(self) -> bool:
        """Whether it only computes live integers."""
        return all(call.operator.kind in (Kind.SCALAR, Kind.SOURCE) for call in self.calls)

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(tensor for call in self.calls for tensor in call.reads))

    @cached_property
    def reads_besides(self) -> tuple[Tensor, ...]:
        """The tensors that the left-out nodes would read."""
        read = (tensor for node in self.left_out for arg in node.args[:-1] for tensor in tensors(arg))
        return tuple(dict.fromkeys(tensor for tensor in read if tensor not in self.reads))

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(tensor for call in self.calls for tensor in call.writes))


def nodes_of(call: Call) -> tuple[Node, ...]:
    return call.replaced or (call.node,)


class NoReferenceError(Exception):
    """A step has no reference; the message says why."""


def makers_of(graph: Graph) -> Mapping[int, Node]:
    """The node that makes each value, by id."""
    made: dict[int, Node] = {}
    for node in graph.nodes:
        output = node.args[-1]
        for item in output.items if isinstance(output, ValueList) else (output,):
            if isinstance(item, (Tensor, SymInt)):
                made.setdefault(item.id, node)
    return made


def values_of(graph: Graph) -> set[int]:
    """The ids of the tensors of a graph's nodes; rewrites add others between their calls."""
    return {tensor.id for node in graph.nodes for arg in node.args for tensor in tensors(arg)}


def steps_of(graph: Graph, once: Sequence[Call], calls: Sequence[Call], plan: Plan) -> list[Step]:
    """The steps of a plan of these calls: first those that ran once at load, then the others in order."""
    owners: dict[int, list[int]] = {}
    for position, call in enumerate(calls):
        for node in call.nodes:
            owners.setdefault(node, []).append(position)
    doing = [sorted({place for node in launch.nodes for place in owners[node]}) for launch in plan.launches]
    together = [(places[0], places[-1]) for places in doing]
    together += _internal_spans(graph, calls)
    left_out = _LeftOut(graph, (*once, *calls))
    steps = [Step((call,), left_out=left_out.by((call,))) for call in once]
    launch = 0
    for start, end in _merged(together, len(calls)):
        first = launch
        while launch < len(doing) and doing[launch][0] <= end:
            launch += 1
        of_step = tuple(calls[start : end + 1])
        steps.append(Step(of_step, first, launch, left_out.by(of_step)))
    return steps


class _LeftOut:
    """Finds nodes that no call computes any more, from the calls that would have read their outputs."""

    def __init__(self, graph: Graph, calls: Iterable[Call]) -> None:
        self._makers = makers_of(graph)
        self._done = {node.index for call in calls for node in nodes_of(call)}

    def by(self, calls: Iterable[Call]) -> tuple[Node, ...]:
        found: dict[int, Node] = {}
        pending = [node for call in calls for node in nodes_of(call)]
        while pending:
            for value in (value for arg in pending.pop().args for value in _ids(arg)):
                maker = self._makers.get(value)
                if maker is not None and maker.index not in self._done and maker.index not in found:
                    found[maker.index] = maker
                    pending.append(maker)
        return tuple(found.values())


def _ids(value: Value) -> tuple[int, ...]:
    items = value.items if isinstance(value, ValueList) else (value,)
    return tuple(item.id for item in items if isinstance(item, (Tensor, SymInt)))


def _internal_spans(graph: Graph, calls: Sequence[Call]) -> Iterable[tuple[int, int]]:
    """From the call that makes a tensor that no node has, to the calls that read it."""
    known = values_of(graph)
    makers: dict[int, int] = {}
    for position, call in enumerate(calls):
        for tensor in call.reads:
            if tensor.id in makers:
                yield makers[tensor.id], position
        for tensor in call.writes:
            if tensor.id not in known and tensor.constant is None:
                makers.setdefault(tensor.id, position)


def _merged(spans: Iterable[tuple[int, int]], count: int) -> Iterable[tuple[int, int]]:
    """Overlapping spans as one, and every other call alone."""
    ends = list(range(count))
    for start, end in spans:
        ends[start] = max(ends[start], end)
    start = 0
    while start < count:
        end, place = ends[start], start
        while place <= end:
            end = max(end, ends[place])
            place += 1
        yield start, end
        start = end + 1
