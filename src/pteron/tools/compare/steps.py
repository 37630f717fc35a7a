"""A plan's calls -> steps: the least that can be looked at from outside, each with the launches that do
its work.

A call is a step of its own, unless a join has made one launch of its last and the next call's first, or it
leaves the next something that no node of the graph has: these calls are one step.
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
    """Calls that run together, and their launches: from `first` up to, but without, `last`."""

    calls: tuple[Call, ...]
    first: int = 0
    last: int = 0
    left_out: tuple[
        Node, ...
    ] = ()  # nodes that rewrites dropped, since what these calls make needs them no more

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes whose work it does, in order."""
        found = {node.index: node for call in self.calls for node in nodes_of(call)}
        found |= {node.index: node for node in self.left_out}
        return tuple(found[index] for index in sorted(found))

    @property
    def signature(self) -> tuple[object, ...]:
        """What distinguishes it from a step that rewrites and joins made otherwise."""
        indices = tuple(node.index for node in self.nodes)
        return indices, tuple(call.operator.name for call in self.calls), self.last - self.first

    @property
    def ran(self) -> str:
        """The operators that ran."""
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
        """What nodes that were left out would read."""
        read = (tensor for node in self.left_out for arg in node.args[:-1] for tensor in tensors(arg))
        return tuple(dict.fromkeys(tensor for tensor in read if tensor not in self.reads))

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(tensor for call in self.calls for tensor in call.writes))


def nodes_of(call: Call) -> tuple[Node, ...]:
    """The nodes whose work a call does."""
    return call.replaced or (call.node,)


class NoReferenceError(Exception):
    """Nothing to compare a step with; the message says why."""


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
    """The tensors that nodes of a graph make or read, by id; rewrites add others between the calls they
    make."""
    return {tensor.id for node in graph.nodes for arg in node.args for tensor in tensors(arg)}


def steps_of(graph: Graph, once: Sequence[Call], calls: Sequence[Call], plan: Plan) -> list[Step]:
    """The steps of a plan that was made of these calls, in order, behind those that ran once at load."""
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
    """Nodes that no call does the work of any more, by those that read what they made."""

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
    """From who makes a tensor that no node has, to who reads it last."""
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
    """Spans that reach into one another as one, and every other place alone."""
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
