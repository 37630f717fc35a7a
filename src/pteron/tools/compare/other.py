"""A second program, run node by node on the same inputs -> the expected outputs of the first one's nodes, and
what differs in a node."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pteron.graph import Graph, Node
from pteron.ops import OPERATORS, Kind
from pteron.ops.operand import HostArray
from pteron.tools import Progress
from pteron.tools.alignment import align
from pteron.tools.compare.steps import NoReferenceError, StepRecord
from pteron.tools.graph_structure import leaves
from pteron.tools.inspect.nodes import NodeChange, name_of, node_changes

Outputs: TypeAlias = Mapping[int, HostArray | int]  # of a node, by id
Place: TypeAlias = tuple[int, int]  # delegate and node


@dataclass(slots=True)
class OtherProgram:
    """The reference program. The outputs of its nodes are kept until the first program's ran, too."""

    name: str
    graphs: Sequence[Graph]  # of its delegates
    compared: Sequence[Graph]  # of the first program's delegates
    progress: Progress
    call: str = ""  # the running call
    _outputs: dict[Place, deque[Outputs]] = field(default_factory=lambda: defaultdict(deque))
    _counterparts: dict[Place, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for delegate, graphs in enumerate(zip(self.graphs, self.compared, strict=False)):
            for other, node in align(*graphs):
                if other and node:
                    self._counterparts[delegate, node.index] = other

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None:
        """Keep the outputs of a step of this program."""
        self.progress(f"running {self.name}, step", index + 1, count)
        for node in record.step.nodes:
            self._outputs[delegate, node.index].append({**record.integers, **record.after})

    def evaluate(self, record: StepRecord) -> Outputs:
        """What the counterparts of a step's nodes gave in the same call."""
        delegate = next(at for at, graph in enumerate(self.compared) if graph is record.graph)
        expected: dict[int, HostArray | int] = {}
        for node in record.step.nodes:
            other = self._counterparts.get((delegate, node.index))
            if other is None:
                raise NoReferenceError(f"{self.name} has no such node")
            if not (given := self._outputs[delegate, other.index]):
                raise NoReferenceError(f"{name_of(other)} of {self.name} did not run")
            outputs = given.popleft()
            for mine, theirs in _written(node, other):
                if theirs in outputs:
                    expected[mine] = outputs[theirs]
        return expected

    def explain(self, delegate: int, record: StepRecord) -> str:
        """The difference of a step's nodes, or of the constants that they read, in words."""
        if delegate >= len(self.graphs):
            return ""
        changes = node_changes(self.graphs[delegate], self.compared[delegate], "")
        by_name = {change.after: change for change in changes}
        read = {value.id for node in record.step.nodes for value in leaves(*node.args[:-1])}
        prepacks = (
            node
            for node in record.graph.nodes
            if OPERATORS[node.name].kind is Kind.PREPACK and read & {v.id for v in leaves(node.args[-1])}
        )
        found = (by_name.get(name_of(node)) for node in (*record.step.nodes, *prepacks))
        return "; ".join(_text(change) for change in found if change is not None)


def _written(node: Node, other: Node) -> Iterator[tuple[int, int]]:
    """The ids of the outputs of two nodes; of the same operator also those of arguments that it changes."""
    count = len(node.args) if node.name == other.name else 1
    for mine, theirs in zip(node.args[-count:], other.args[-count:], strict=False):
        yield from ((a.id, b.id) for a, b in zip(leaves(mine), leaves(theirs), strict=False))


def _text(change: NodeChange) -> str:
    if not change.arguments:
        return f"{change.before} there"
    return ", ".join(map(str, change.arguments))
