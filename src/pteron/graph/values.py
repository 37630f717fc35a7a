"""Values and nodes of a delegate's graph: tensors, live integers, lists and plain Python scalars.

Null, Int, Double, Bool, String and their lists are None, int, float, bool, str and tuples of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.source import contents, is_same

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor's initial bytes in the file: a view, not copied before its upload.

    Constants are equal if their keys, types, shapes and bytes are; read-only ones then share one upload.
    Exporters derive keys from content, but equal keys alone prove nothing.
    """

    key: str
    dtype: DType
    shape: Shape
    data: memoryview = field(repr=False)

    def __hash__(self) -> int:
        return hash((self.key, self.dtype, self.shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        if self is other:
            return True
        alike = (self.key, self.dtype, self.shape) == (other.key, other.dtype, other.shape)
        try:
            return alike and is_same(self.data, other.data)
        except FormatError:  # a file has changed: its former content is unknown
            return False

    def numpy(self) -> npt.NDArray[np.generic]:
        """The constant as an array, read from the file."""
        return np.frombuffer(contents(self.data), self.dtype.numpy).reshape(self.shape)

    def bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(contents(self.data), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor value; its live shape may be smaller than `shape_max` in any dim, never larger."""

    id: int
    dtype: DType
    shape_max: Shape
    constant: Constant | None = None
    memory: int | None = None  # tensors of one memory object may share a buffer; None: its own

    def __str__(self) -> str:
        return f"%{self.id}:{self.dtype}{list(self.shape_max)}"


@dataclass(frozen=True, slots=True, eq=False)
class SymInt:
    """An integer that is known only at a call, and may change at the next."""

    id: int
    initial: int = 0

    def __str__(self) -> str:
        return f"%{self.id}:SymInt"


@dataclass(frozen=True, slots=True, eq=False)
class ValueList:
    """A list of values, such as the outputs of an operator; missing ones are None. Lists do not nest."""

    id: int
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return f"%{self.id}:[{', '.join(map(describe, self.items))}]"


Scalar: TypeAlias = int | float | bool | str | None
ScalarList: TypeAlias = tuple[int, ...] | tuple[float, ...] | tuple[bool, ...]
Item: TypeAlias = Tensor | SymInt | Scalar
Value: TypeAlias = Item | ValueList | ScalarList


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call of a graph: the last argument is the output, or the list of outputs."""

    index: int
    name: str
    args: tuple[Value, ...]

    def __str__(self) -> str:
        return f"node {self.index} {self.name}({', '.join(map(describe, self.args))})"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A delegate's graph: its nodes in execution order, its inputs and outputs."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Tensor | SymInt, ...]
    outputs: tuple[Tensor | SymInt, ...]
    is_internal: bool = False  # made by Pteron itself, so it may call operators that files may not


def describe(value: Value) -> str:
    """A value as error messages show it."""
    return str(value) if isinstance(value, (Tensor, SymInt, ValueList)) else repr(value)


def tensors(value: Value) -> tuple[Tensor, ...]:
    """The tensors in a value: itself, a list's members, or none."""
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, ValueList):
        return tuple(item for item in value.items if isinstance(item, Tensor))
    return ()


def ids_of(graph: Graph) -> Iterator[int]:
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


def numel(shape: Shape) -> int:
    return math.prod(shape)
