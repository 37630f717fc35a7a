"""What a delegate's blob says, as plain records: every id in them is a place in `values` or `constants`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pteron.dtypes import DType


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor of the graph; `dims` are upper bounds where shapes are dynamic."""

    dtype: DType
    dims: tuple[int, ...]
    constant_id: int | None
    memory_id: int | None
    """Tensors with the same id never live at the same time and may share memory."""


@dataclass(frozen=True, slots=True)
class VkValueList:
    """A list of other values of the graph, by id."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkSymInt:
    """An integer known only when the graph runs; `value` is its upper bound or a guess."""

    value: int


Scalar: TypeAlias = int | float | bool | str
ScalarList: TypeAlias = tuple[int, ...] | tuple[float, ...] | tuple[bool, ...]
VkValue: TypeAlias = Scalar | ScalarList | VkTensor | VkValueList | VkSymInt | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One operator call: the last argument is the output, all the others are inputs."""

    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantRecord:
    """A constant's bytes; None where nothing is stored under its key."""

    key: str | None
    length: int
    data: memoryview | None


@dataclass(frozen=True, slots=True)
class DelegateGraph:
    """Operator calls in order, the values they use, and the constants behind some of the values."""

    name: str
    nodes: tuple[NodeRecord, ...]
    values: tuple[VkValue, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    constants: tuple[ConstantRecord, ...]
