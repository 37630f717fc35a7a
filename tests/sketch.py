"""Delegate graphs written by hand, for tests of what happens between a graph and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, Shape, SymInt, Tensor, Value, ValueList
from pteron.graph.values import Item
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled, Plan


class Sketch:
    """A graph in the making: values are numbered as they are made, nodes as they are added."""

    def __init__(self) -> None:
        self._next = 0
        self.nodes: list[Node] = []

    def tensor(self, *shape: int, dtype: DType = DType.F32, memory: int | None = None) -> Tensor:
        return Tensor(self._id(), dtype, shape, None, memory)

    def constant(self, *shape: int, dtype: DType = DType.F32, key: str | None = None) -> Tensor:
        id = self._id()
        data = memoryview(np.ones(shape, dtype.numpy).tobytes())
        return Tensor(id, dtype, shape, Constant(key or f"constant {id}", dtype, shape, data))

    def symbol(self) -> SymInt:
        return SymInt(self._id())

    def list(self, *items: Item) -> ValueList:
        return ValueList(self._id(), items)

    def node(self, name: str, *arguments: Value) -> None:
        self.nodes.append(Node(len(self.nodes), name, arguments))

    def graph(self, inputs: Sequence[Tensor | SymInt], outputs: Sequence[Tensor | SymInt]) -> Graph:
        return Graph("sketch", tuple(self.nodes), tuple(inputs), tuple(outputs))

    def prepare(
        self,
        inputs: Sequence[Tensor | SymInt],
        outputs: Sequence[Tensor | SymInt],
        target: Target | None = None,
    ) -> Compiled:
        return Compiled(prepare(self.graph(inputs, outputs)), target or Target())

    def _id(self) -> int:
        self._next += 1
        return self._next - 1


def plan_at(
    compiled: Compiled,
    shapes: Mapping[Tensor, Shape] | None = None,
    values: Mapping[SymInt, int] | None = None,
) -> Plan:
    """The plan of every call; inputs that are not named have their maximum shape."""
    live = tuple(
        (shapes or {}).get(value, value.shape_max) if isinstance(value, Tensor) else None
        for value in compiled.prepared.graph.inputs
    )
    return compiled.plan(live, {symbol.id: value for symbol, value in (values or {}).items()})
