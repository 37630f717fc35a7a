"""A graph on its way from one sequence to many: what has become of its values so far.

Rows of all sequences stand where the steps of one sequence stood. A value is fixed, the same for all rows; or
it has a dim of rows; or it follows from the position, which the rows do not share, and then only those
operators may see it that know how to look up each row's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count

from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, Shape, SymInt, Tensor, Value, ValueList
from pteron.graph.values import Item, tensors


class Live(Enum):
    """What a live integer of the graph counts."""

    STEPS = auto()  # the steps of a call, now its rows
    POSITION = auto()  # where the first of them stands
    END = auto()  # where the last of them ends
    OTHER = auto()  # what else comes from the position


class NotBatchableError(Exception):
    """A node does what cannot be done for the rows of several sequences; says what."""


@dataclass(slots=True)
class BatchedGraphBuilder:
    """The nodes so far, and what stands for the values that they take."""

    graph: Graph
    slots: int
    nodes: list[Node] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)  # the dim of rows, of tensors that have one
    symbols: dict[int, Live] = field(default_factory=dict)  # of live integers that are not plain ones
    # Rows of a table from the position on: the table.
    from_position: dict[int, Tensor] = field(default_factory=dict)
    caches: dict[int, Tensor] = field(default_factory=dict)
    angles: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # by tables
    _made: dict[int, Tensor] = field(default_factory=dict)  # in the place of tensors with rows
    _ids: Iterator[int] = field(init=False)
    places: Tensor = field(init=False)
    context: SymInt = field(init=False)

    def __post_init__(self) -> None:
        self._ids = count(1 + max(_ids_of(self.graph), default=0))

    @property
    def steps_max(self) -> int:
        """The steps that a call over one sequence takes at most: where its tokens have them, rows will be."""
        tokens = self.graph.inputs[0]
        assert isinstance(tokens, Tensor)
        return tokens.shape_max[1]

    # Values ---------------------------------------------------------------------------------------

    def new_id(self) -> int:
        return next(self._ids)

    def new(self, dtype: DType, shape: Shape) -> Tensor:
        return Tensor(self.new_id(), dtype, shape)

    def zeros(self, id: int, dtype: DType, shape: Shape) -> Tensor:
        """A state that begins as zeros, of which nobody keeps a copy."""
        return Tensor(id, dtype, shape, Constant(f"zeros {id}", dtype, shape, memoryview(b"")))

    def give_rows(self, tensor: Tensor, dim: int) -> Tensor:
        """What stands for a tensor whose dim counts rows."""
        if tensor.id in self.rows:
            raise NotBatchableError(f"{tensor} is written twice")
        shape = (*tensor.shape_max[:dim], self.slots, *tensor.shape_max[dim + 1 :])
        self.rows[tensor.id] = dim
        self._made[tensor.id] = replace(tensor, shape_max=shape)
        return self._made[tensor.id]

    def has_rows(self, value: Value) -> bool:
        return isinstance(value, Tensor) and value.id in self.rows

    def row_dim(self, value: Value) -> int:
        """The dim of a tensor that counts rows."""
        if not isinstance(value, Tensor) or value.id not in self.rows:
            raise NotBatchableError(f"{value} is the same for all sequences")
        return self.rows[value.id]

    def is_fixed(self, value: Value) -> bool:
        """Whether a value is the same for all rows."""
        if isinstance(value, ValueList):
            return all(map(self.is_fixed, value.items))
        if isinstance(value, SymInt):
            return value.id not in self.symbols
        is_live = isinstance(value, Tensor) and (
            value.id in self.rows or value.id in self.from_position or value.id in self.caches
        )
        return not is_live and not (isinstance(value, Tensor) and value in self.graph.inputs)

    def is_position(self, value: Value, of: Live = Live.POSITION) -> bool:
        return isinstance(value, SymInt) and self.symbols.get(value.id) is of

    def now(self, value: Value) -> Value:
        """What stands for a value that an operator takes without knowing of rows."""
        if isinstance(value, ValueList):
            return replace(value, items=tuple(_item(self.now(item)) for item in value.items))
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
        """Add a node."""
        self.nodes.append(Node(len(self.nodes), name, arguments))

    def keep(self, node: Node) -> None:
        """Add a node as it is, over what stands for its values."""
        self.emit(node.name, *map(self.now, node.args))


def _item(value: Value) -> Item:
    assert not isinstance(value, (ValueList, tuple))  # lists do not nest
    return value


def _ids_of(graph: Graph) -> Iterator[int]:
    """The ids of all values."""
    for value in (*graph.inputs, *graph.outputs):
        yield value.id
    for node in graph.nodes:
        for argument in node.args:
            yield from (tensor.id for tensor in tensors(argument))
            if isinstance(argument, (SymInt, ValueList)):
                yield argument.id
            if isinstance(argument, ValueList):
                yield from (item.id for item in argument.items if isinstance(item, SymInt))
