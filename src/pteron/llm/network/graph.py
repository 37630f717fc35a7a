"""Calls of operators enter; a delegate's graph leaves, as the records that `write_delegate` writes.

    graph = GraphBuilder()
    x = graph.input(DType.F32, (1, tokens, 64))
    y = graph.call("aten.add.Tensor", x, x, 1, out=x.sizes)

Sizes are integers, or live integers where a dimension is known only at a call. Nodes belong to sections,
which follow one another in the finished graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias, cast

from pteron.dtypes import DType
from pteron.format.program_writer import StreamedData
from pteron.format.records import (
    ConstantRecord,
    DelegateGraph,
    NodeRecord,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)


@dataclass(frozen=True, slots=True)
class LiveInt:
    """An integer that is known only at a call; `max` bounds it where it is a size."""

    id: int
    max: int = 0


Size: TypeAlias = int | LiveInt


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph under construction."""

    id: int
    dtype: DType
    sizes: tuple[Size, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The maximum shape."""
        return tuple(size.max if isinstance(size, LiveInt) else size for size in self.sizes)


Scalar: TypeAlias = int | float | bool | str | None
Argument: TypeAlias = Tensor | LiveInt | Scalar | Sequence[Tensor | LiveInt | Scalar]

# Sections of nodes: constants, the embedding and what it needs, positions, everything else.
CONSTANTS, INPUTS, POSITIONS, BODY = range(4)


class GraphBuilder:
    def __init__(self) -> None:
        self.named_data: dict[str, StreamedData] = {}
        self._values: list[VkValue] = []
        self._constants: list[ConstantRecord] = []
        self._scalars: dict[tuple[type, Scalar], int] = {}
        self._sections: list[list[NodeRecord]] = [[] for _ in range(4)]
        self._inputs: list[int] = []

    def input(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """An input, at its maximum shape."""
        tensor = self._tensor(dtype, tuple(shape))
        self._inputs.append(tensor.id)
        return tensor

    def constant(self, key: str, dtype: DType, shape: Sequence[int], data: StreamedData) -> Tensor:
        """A constant; those with equal keys share their data. One that an operator writes is a state."""
        assert data.size == prod(shape) * dtype.itemsize, key
        self.named_data.setdefault(key, data)
        assert self.named_data[key].size == data.size, key
        self._constants.append(ConstantRecord(key, data.size, None))
        return self._tensor(dtype, tuple(shape), len(self._constants) - 1)

    def call(
        self,
        name: str,
        *args: Argument,
        out: Sequence[Size],
        dtype: DType | None = None,
        section: int = BODY,
    ) -> Tensor:
        """Call an operator with one output, whose element type is by default that of the first argument."""
        if dtype is None:
            assert isinstance(args[0], Tensor), name
            dtype = args[0].dtype
        result = self._tensor(dtype, tuple(out))
        self._append(name, args, result, section)
        return result

    def call_many(
        self, name: str, *args: Argument, out: Sequence[tuple[DType, Sequence[Size]]], section: int = BODY
    ) -> tuple[Tensor, ...]:
        """Call an operator with several outputs."""
        results = tuple(self._tensor(dtype, tuple(sizes)) for dtype, sizes in out)
        self._append(name, args, results, section)
        return results

    def live(self, name: str, *args: Argument, max: int = 0, section: int = INPUTS) -> LiveInt:
        """Call an operator that gives a live integer."""
        result = LiveInt(self._add(VkSymInt(0)), max)
        self._append(name, args, result, section)
        return result

    def finish(self, name: str, outputs: Sequence[Tensor]) -> DelegateGraph:
        """The graph, with tensors assigned to memory objects."""
        nodes = tuple(node for section in self._sections for node in section)
        output_ids = tuple(tensor.id for tensor in outputs)
        values = tuple(plan_memory(self._values, nodes, self._inputs, output_ids))
        constants = tuple(self._constants)
        return DelegateGraph(name, nodes, values, tuple(self._inputs), output_ids, constants)

    def _append(self, name: str, args: Sequence[Argument], result: Argument, section: int) -> None:
        ids = tuple(self._id(argument) for argument in (*args, result))
        self._sections[section].append(NodeRecord(name, ids))

    def _id(self, argument: Argument) -> int:
        if isinstance(argument, (Tensor, LiveInt)):
            return argument.id
        if isinstance(argument, (list, tuple)):
            if any(isinstance(item, (Tensor, LiveInt)) for item in argument):
                return self._add(VkValueList(tuple(map(self._id, argument))))
            return self._add(cast(VkValue, tuple(argument)))
        scalar = cast(Scalar, argument)
        key = (type(scalar), scalar)
        if key not in self._scalars:
            self._scalars[key] = self._add(scalar)
        return self._scalars[key]

    def _tensor(self, dtype: DType, sizes: tuple[Size, ...], constant: int | None = None) -> Tensor:
        tensor = Tensor(len(self._values), dtype, sizes)
        self._add(VkTensor(dtype, tensor.shape, constant, None))
        return tensor

    def _add(self, value: VkValue) -> int:
        self._values.append(value)
        return len(self._values) - 1


def plan_memory(
    values: Sequence[VkValue], nodes: Sequence[NodeRecord], inputs: Sequence[int], outputs: Sequence[int]
) -> list[VkValue]:
    """Values with memory objects: two tensors share one if they are never alive at the same node.

    Pteron makes no copies for views, so a tensor counts as alive while a view of it is, and views have memory
    objects of their own, which only other runtimes use.
    """
    used = [[id for arg in node.args for id in _tensors(values, arg)] for node in nodes]
    is_view = [node.name == "aten.view_copy.default" for node in nodes]
    views = {ids[1]: ids[0] for ids, view in zip(used, is_view, strict=True) if view}
    last = dict.fromkeys(outputs, len(nodes))
    for index, ids in enumerate(used):
        for id in ids:
            while True:
                last[id] = max(index, last.get(id, 0))
                if id not in views:
                    break
                id = views[id]
    ending: dict[int, list[int]] = {}
    for id, index in last.items():
        ending.setdefault(index, []).append(id)
    own, of_views = _MemoryObjects(0), _MemoryObjects(1)
    prepacked: set[int] = set()  # these outlive a call
    for id in inputs:
        own.allocate(id, _size(values[id]))
    for index, (node, ids) in enumerate(zip(nodes, used, strict=True)):
        if node.name == "et_vk.prepack.default":
            prepacked.update(ids)
        for id in dict.fromkeys(ids):
            if id not in own.memory_of and id not in of_views.memory_of and id not in prepacked:
                (of_views if is_view[index] else own).allocate(id, _size(values[id]))
        for id in ending.get(index, ()):
            own.free(id)
            of_views.free(id)
    memory = own.memory_of | of_views.memory_of
    return [
        VkTensor(value.dtype, value.dims, value.constant_id, memory.get(id))
        if isinstance(value, VkTensor)
        else value
        for id, value in enumerate(values)
    ]


def _tensors(values: Sequence[VkValue], id: int) -> tuple[int, ...]:
    """The ids of tensors in a value, other than constants."""
    value = values[id]
    if isinstance(value, VkValueList):
        return tuple(item for member in value.items for item in _tensors(values, member))
    return (id,) if isinstance(value, VkTensor) and value.constant_id is None else ()


def _size(value: VkValue) -> int:
    assert isinstance(value, VkTensor)
    return prod(value.dims) * value.dtype.itemsize


class _MemoryObjects:
    """Memory objects with every second id, from `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.memory_of: dict[int, int] = {}
        self.sizes: list[int] = []
        self.unused: set[int] = set()

    def allocate(self, id: int, size: int) -> None:
        """Take the smallest unused object that is large enough, else enlarge the largest, else a new one."""
        fitting = [index for index in self.unused if self.sizes[index] >= size]
        if fitting:
            index = min(fitting, key=self.sizes.__getitem__)
        elif self.unused:
            index = max(self.unused, key=self.sizes.__getitem__)
            self.sizes[index] = size
        else:
            index = len(self.sizes)
            self.sizes.append(size)
        self.unused.discard(index)
        self.memory_of[id] = 2 * index + self.first

    def free(self, id: int) -> None:
        if id in self.memory_of:
            self.unused.add(self.memory_of[id] // 2)
