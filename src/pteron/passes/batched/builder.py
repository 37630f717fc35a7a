"""Builds the batched graph node by node, knows the batched form of every value, and has the table of rules.

The dim of one sequence's steps becomes the dim of rows. A value is fixed (the same for all rows), or has a
dim of rows, or depends on the position. Rows have different positions, so only operators that look up each
row's own position may take such a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count
from typing import TypeAlias, cast

import pteron.families  # noqa: F401  # registers the operators
from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, Shape, SymInt, Tensor, Value, ValueList
from pteron.graph.values import Item, ids_of, tensors
from pteron.ops import OPERATORS


class Live(Enum):
    """The meaning of a live integer of the graph."""

    STEPS = auto()  # the steps of a call, now its rows
    POSITION = auto()  # of the first step
    END = auto()  # position + steps
    OTHER = auto()  # another number made of the position


class NotBatchableError(Exception):
    """A node that cannot run on rows of several sequences; the message is the reason."""


@dataclass(slots=True)
class BatchedGraphBuilder:
    """The nodes so far, and the batched form of the values that they take."""

    graph: Graph
    slots: int
    nodes: list[Node] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)  # the dim of rows, of tensors that have one
    symbols: dict[int, Live] = field(default_factory=dict)  # of live integers that are not plain ones
    from_position: dict[int, Tensor] = field(default_factory=dict)  # rows of this table from the position on
    caches: dict[int, Tensor] = field(default_factory=dict)
    angles: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # by tables
    _made: dict[int, Tensor] = field(default_factory=dict)  # the batched form of tensors with rows
    _ids: Iterator[int] = field(init=False)
    places: Tensor = field(init=False)
    context: SymInt = field(init=False)

    def __post_init__(self) -> None:
        self._ids = count(1 + max(ids_of(self.graph), default=0))

    @property
    def steps_max(self) -> int:
        """The maximum of steps in a call for one sequence: the size of the dim that becomes rows."""
        tokens = self.graph.inputs[0]
        assert isinstance(tokens, Tensor)
        return tokens.shape_max[1]

    # Values ---------------------------------------------------------------------------------------

    def new_id(self) -> int:
        return next(self._ids)

    def new(self, dtype: DType, shape: Shape) -> Tensor:
        return Tensor(self.new_id(), dtype, shape)

    def zeros(self, id: int, dtype: DType, shape: Shape) -> Tensor:
        """A state that starts as zeros, without stored bytes."""
        return Tensor(id, dtype, shape, Constant(f"zeros {id}", dtype, shape, memoryview(b"")))

    def give_rows(self, tensor: Value, dim: int) -> Tensor:
        """Register an output whose dim counts rows, and return its batched form."""
        assert isinstance(tensor, Tensor)
        if tensor.id in self.rows:
            raise NotBatchableError(f"{tensor} is written twice")
        shape = (*tensor.shape_max[:dim], self.slots, *tensor.shape_max[dim + 1 :])
        self.rows[tensor.id] = dim
        self._made[tensor.id] = replace(tensor, shape_max=shape)
        return self._made[tensor.id]

    def gather(self, tensor: Tensor) -> None:
        """Make rows of a table from the position on, such as learned positions, one row per sequence."""
        table = self.from_position[tensor.id]
        refuse_unless(len(table.shape_max) == 2, "it takes what depends on the position")
        del self.from_position[tensor.id]
        columns = table.shape_max[1]
        twice = self.new(table.dtype, (self.slots, 2 * columns))
        self.emit("pteron.row_angles", table, table, self.places, twice)
        self.emit("aten.slice_copy.Tensor", twice, 1, 0, columns, 1, self.give_rows(tensor, 0))

    def has_rows(self, value: Value) -> bool:
        return isinstance(value, Tensor) and value.id in self.rows

    def row_dim(self, value: Value) -> int:
        if not isinstance(value, Tensor) or value.id not in self.rows:
            raise NotBatchableError(f"{value} is the same for all sequences")
        return self.rows[value.id]

    def leading_dim(self, value: Value) -> int:
        """The dim of rows of a tensor whose earlier dims are all 1, so that each row is contiguous."""
        dim = self.row_dim(value)
        refuse_unless(
            all(size == 1 for size in shape_of(value)[:dim]), f"{value} does not keep rows together"
        )
        return dim

    def is_fixed(self, value: Value) -> bool:
        """Whether a value is the same for all rows."""
        if isinstance(value, ValueList):
            return all(map(self.is_fixed, value.items))
        if isinstance(value, SymInt):
            return value.id not in self.symbols
        if isinstance(value, Tensor):
            known = (self.rows, self.from_position, self.caches)
            return not any(value.id in ids for ids in known) and value not in self.graph.inputs
        return True

    def is_position(self, value: Value, of: Live = Live.POSITION) -> bool:
        return isinstance(value, SymInt) and self.symbols.get(value.id) is of

    def now(self, value: Value) -> Value:
        """The batched form of a value, for an operator that treats rows independently."""
        if isinstance(value, ValueList):
            items = tuple(cast(Item, self.now(item)) for item in value.items)  # lists do not nest
            return replace(value, items=items)
        if isinstance(value, SymInt) and self.symbols.get(value.id, Live.STEPS) is not Live.STEPS:
            raise NotBatchableError("it takes the position, which differs from sequence to sequence")
        if isinstance(value, Tensor):
            if value.id in self.from_position or value in self.graph.inputs[1:]:
                raise NotBatchableError("it takes what depends on the position")
            if value.id in self.caches:
                raise NotBatchableError("it reads a cache as a whole")
            return self._made.get(value.id, value)
        return value

    # Nodes ----------------------------------------------------------------------------------------

    def emit(self, name: str, *arguments: Value) -> None:
        self.nodes.append(Node(len(self.nodes), name, arguments))

    def keep(self, node: Node, dim: int | None = None) -> None:
        """Add a node as it is, on the batched form of its values. With `dim`, its outputs have rows there."""
        if dim is not None:
            for output in tensors(node.args[-1]):
                self.give_rows(output, dim)
        self.emit(node.name, *map(self.now, node.args))

    def keep_dim(self, node: Node) -> None:
        """Add a node whose outputs have their rows in the dim of the first input's."""
        self.keep(node, self.row_dim(node.args[0]))


Rule: TypeAlias = Callable[[BatchedGraphBuilder, Node], None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the function that adds the batched form of a node of these operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name in OPERATORS, name
            RULES[name] = function
        return function

    return register


def refuse_unless(holds: bool, reason: str) -> None:
    """Raise a NotBatchableError with the reason unless the condition holds."""
    if not holds:
        raise NotBatchableError(reason)


def shape_of(value: Value) -> Shape:
    assert isinstance(value, Tensor)
    return value.shape_max


def dim_of(value: Value, rank: int) -> int:
    """A dim argument, counted from the front."""
    if not isinstance(value, int):
        raise NotBatchableError("a dim is not a number")
    return value % rank if rank else 0
