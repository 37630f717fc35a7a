"""A graph drawn node by node, with live sizes by name, and the inputs of its calls: numbers that every
machine computes alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, Shape, SymInt, Tensor, ValueList

Size: TypeAlias = int | str  # a name is live: it has one value in each call
Array: TypeAlias = npt.NDArray[Any]
_MULTIPLIER = 2654435761  # of Knuth's hash
_APART = 7919  # a prime: numbers of neighbouring tensors differ


def hashed(count: int, limit: int = 0, first: int = 0) -> Array:
    """Numbers of a tensor: floats from -1 to 1, or integers from 0 to below a limit. The player of web/
    computes the same."""
    mixed = (np.arange(first, first + count, dtype=np.uint64) * _MULTIPLIER & 0xFFFFFFFF) >> 8
    return mixed.astype(np.float64) / (1 << 23) - 1 if limit == 0 else (mixed % limit).astype(np.int64)


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A graph, and the inputs of the calls that are made of it, one after the other."""

    name: str
    graph: Graph
    calls: tuple[tuple[Array | int, ...], ...]
    sizes: tuple[str, ...]  # of each call, for reports


@dataclass(frozen=True, slots=True)
class _Input:
    value: Tensor | SymInt
    sizes: tuple[Size, ...]
    limit: int = 0


class Drawing:
    """A case in the making. `live` has the values of live sizes and live integers, call by call."""

    def __init__(self, name: str, **live: Sequence[int]) -> None:
        self.name = name
        self._live = live or {"S": (7, 1, 5)}
        self._ids = 0
        self._inputs: list[_Input] = []
        self._nodes: list[Node] = []

    def input(self, *sizes: Size, dtype: str = "f32", limit: int = 0) -> Tensor:
        """An input: floats from -1 to 1, or integers below a limit."""
        value = self._tensor(sizes, dtype)
        self._inputs.append(_Input(value, sizes, limit))
        return value

    def integer(self, name: str) -> SymInt:
        """A live integer, by its name among the live values."""
        value = SymInt(self._id())
        self._inputs.append(_Input(value, (name,)))
        return value

    def weight(
        self, *shape: int, dtype: str = "f32", limit: int = 0, scale: float = 1.0, shift: float = 0.0
    ) -> Tensor:
        """A constant: numbers as those of inputs, times a scale, plus a shift."""
        numbers = hashed(prod(shape), limit, self._ids * _APART) * scale + shift
        return self.given(numbers.astype(DType(dtype).numpy).reshape(shape))

    def given(self, values: Array) -> Tensor:
        """A constant of these values."""
        dtype, id = DType.of(values.dtype), self._id()
        assert dtype is not None
        data = np.ascontiguousarray(values).tobytes()
        key = sha256(data).hexdigest()
        return Tensor(id, dtype, values.shape, Constant(key, dtype, values.shape, memoryview(data)))

    def node(self, name: str, *arguments: Any, out: Sequence[Size], dtype: str = "f32") -> Tensor:
        """The output of an operator."""
        (made,) = self.nodes(name, *arguments, outs=[out], dtypes=[dtype])
        return made

    def nodes(
        self, name: str, *arguments: Any, outs: Sequence[Sequence[Size]], dtypes: Sequence[str] = ()
    ) -> list[Tensor]:
        """The outputs of an operator."""
        kinds = dtypes or ["f32"] * len(outs)
        made = [self._tensor(sizes, dtype) for sizes, dtype in zip(outs, kinds, strict=True)]
        output = made[0] if len(made) == 1 else ValueList(self._id(), tuple(made))
        self._nodes.append(Node(len(self._nodes), name, (*map(self._argument, arguments), output)))
        return made

    def size(self, tensor: Tensor, dim: int) -> SymInt:
        """The live size of a dim."""
        return self.computed("sym_size.int", tensor, dim)

    def computed(self, name: str, *arguments: Any) -> SymInt:
        """A live integer that is computed from others."""
        value = SymInt(self._id())
        self._nodes.append(Node(len(self._nodes), name, (*arguments, value)))
        return value

    def case(self, *outputs: Tensor) -> KnownCase:
        """The case with these outputs of its graph."""
        graph = Graph(self.name, tuple(self._nodes), tuple(each.value for each in self._inputs), outputs)
        count = max(map(len, self._live.values()))
        used = [name for each in self._inputs for name in each.sizes if isinstance(name, str)]
        if not used:
            count = 1
        calls, sizes = [], []
        for call in range(count):
            live = {name: values[call % len(values)] for name, values in self._live.items()}
            calls.append(tuple(self._value(each, live) for each in self._inputs))
            sizes.append(", ".join(f"{name}={live[name]}" for name in dict.fromkeys(used)))
        return KnownCase(self.name, graph, tuple(calls), tuple(sizes))

    def _value(self, given: _Input, live: dict[str, int]) -> Array | int:
        if isinstance(given.value, SymInt):
            return live[str(given.sizes[0])]
        shape = tuple(live[size] if isinstance(size, str) else size for size in given.sizes)
        numbers = hashed(prod(shape), given.limit, given.value.id * _APART)
        return numbers.astype(given.value.dtype.numpy).reshape(shape)

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, list):
            return argument
        is_plain = all(isinstance(item, (int, float)) for item in argument)
        return tuple(argument) if is_plain else ValueList(self._id(), tuple(argument))

    def _tensor(self, sizes: Sequence[Size], dtype: str) -> Tensor:
        most: Shape = tuple(max(self._live[size]) if isinstance(size, str) else size for size in sizes)
        return Tensor(self._id(), DType(dtype), most)

    def _id(self) -> int:
        self._ids += 1
        return self._ids
