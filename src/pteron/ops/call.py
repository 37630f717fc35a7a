"""A call: a node of a graph with its operator."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from pteron.graph import Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import tensors
from pteron.ops.operator import Kind, Operator


@dataclass(frozen=True, eq=False)
class Call:
    """An operator with arguments of the kinds it takes; `node` is where it comes from."""

    node: Node
    operator: Operator
    inputs: tuple[Value, ...]
    outputs: tuple[Tensor | SymInt | None, ...]
    replaced: tuple[Node, ...] = ()  # whose work it does, if a rewrite made it

    def __str__(self) -> str:
        return f"node {self.node.index} {self.operator.name}"

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The indices of all nodes whose work it does, in order."""
        return tuple(sorted({self.node.index, *(node.index for node in self.replaced)}))

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(tensor for value in self.inputs for tensor in tensors(value))

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        """The tensors this call changes: its outputs, and inputs that it updates in place."""
        outputs = tuple(value for value in self.outputs if isinstance(value, Tensor))
        return outputs + self.mutated

    @cached_property
    def mutated(self) -> tuple[Tensor, ...]:
        arguments = self.operator.signature.inputs
        return tuple(
            tensor
            for argument, value in zip(arguments, self.inputs, strict=True)
            if argument.mutated
            for tensor in tensors(value)
        )

    @cached_property
    def read_ids(self) -> frozenset[int]:
        """The tensors and live integers that decide what it computes."""
        return frozenset({tensor.id for tensor in self.reads} | {symbol.id for symbol in self.symbols})

    @cached_property
    def written_ids(self) -> frozenset[int]:
        """The tensors and live integers that it changes."""
        outputs = {value.id for value in self.outputs if value is not None}
        return frozenset(outputs | {tensor.id for tensor in self.mutated})

    @cached_property
    def symbols(self) -> tuple[SymInt, ...]:
        values = (item for value in self.inputs for item in _items(value))
        return tuple(value for value in values if isinstance(value, SymInt))


def mutated_ids(calls: Collection[Call]) -> set[int]:
    """Tensors that outlive a call: updated in place, or written after a constant gave them their content."""
    prepacked = {tensor.id for call in calls if call.operator.kind is Kind.PREPACK for tensor in call.writes}
    return {
        tensor.id
        for call in calls
        if call.operator.kind is not Kind.PREPACK
        for tensor in call.writes
        if tensor in (*call.mutated, *call.reads) or tensor.constant is not None or tensor.id in prepacked
    }


def _items(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, ValueList) else (value,)
