"""Calls -> fewer calls: chains that an operator of ours computes in one go become a call of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from pteron.graph import Graph, Tensor, Value
from pteron.ops import OPERATORS
from pteron.ops.fusion import FUSIONS, Fusion, Step
from pteron.passes.placement import mutated_ids
from pteron.passes.resolve import Call


def fuse(graph: Graph, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls with every known chain replaced; a fused call stands where the chain's last one stood."""
    surroundings = _Surroundings.of(graph, calls)
    replaced: dict[Call, Call | None] = {}  # None: went into another
    for call in calls:
        for fusion in FUSIONS:
            match = _Match(fusion, surroundings)
            if match.holds(call) and not any(inner in replaced for inner in match.inner):
                inputs = tuple(match.bound[name] for name in fusion.fused.arguments)
                replaced |= dict.fromkeys(match.inner)
                replaced[call] = Call(call.node, OPERATORS[fusion.fused.operator], inputs, call.outputs)
                break
    result = (replaced.get(call, call) for call in calls)
    return tuple(call for call in result if call is not None)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """Who makes a tensor, how often it is read, and which tensors others see or change."""

    maker: dict[int, Call]
    reads: Counter[int]
    outputs: set[int]
    mutated: set[int]

    @classmethod
    def of(cls, graph: Graph, calls: tuple[Call, ...]) -> _Surroundings:
        return cls(
            maker={
                tensor.id: call for call in calls for tensor in call.outputs if isinstance(tensor, Tensor)
            },
            reads=Counter(tensor.id for call in calls for tensor in call.reads),
            outputs={value.id for value in graph.outputs},
            mutated=mutated_ids(calls),
        )


@dataclass(slots=True)
class _Match:
    """A fusion held against a call: what its names stand for, and the calls inside the chain."""

    fusion: Fusion
    surroundings: _Surroundings
    bound: dict[str, Value] = field(default_factory=dict)
    inner: list[Call] = field(default_factory=list)

    def holds(self, call: Call) -> bool:
        return self._step(self.fusion.steps[-1], call)

    def _step(self, step: Step, call: Call) -> bool:
        if call.operator.name != step.operator or len(call.inputs) != len(step.arguments):
            return False
        for inputs in _orders(call):
            bound, inner = dict(self.bound), list(self.inner)
            if all(self._bind(name, value) for name, value in zip(step.arguments, inputs, strict=True)):
                return True
            self.bound, self.inner = bound, inner
        return False

    def _bind(self, name: str, value: Value) -> bool:
        if name in self.bound:
            return self.bound[name] is value
        if not isinstance(value, Tensor) or value.id in self.surroundings.mutated:
            return False  # what may change in between is not read at another time
        self.bound[name] = value
        made_by = next((step for step in self.fusion.steps if step.result == name), None)
        if made_by is None:
            return True
        maker = self.surroundings.maker.get(value.id)
        uses = sum(step.arguments.count(name) for step in self.fusion.steps)
        is_private = value.id not in self.surroundings.outputs and self.surroundings.reads[value.id] == uses
        if maker is None or not is_private:
            return False
        self.inner.append(maker)
        return self._step(made_by, maker)


def _orders(call: Call) -> Iterator[tuple[Value, ...]]:
    """The ways to read a call's inputs."""
    return iter(permutations(call.inputs)) if call.operator.is_commutative else iter([call.inputs])
