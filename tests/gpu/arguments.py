"""What an operator is tested with: tensors of live sizes, weights, live integers, plain values.

A size that is a name is live: it takes a value at every run, the largest being the tensor's maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType

Array: TypeAlias = npt.NDArray[Any]
Size: TypeAlias = int | str
Sizes: TypeAlias = Mapping[str, int]  # one run's live sizes and live integers, by name


@dataclass(frozen=True, slots=True, eq=False)
class TensorArgument:
    """A tensor of random values in [low, high], or of given ones."""

    shape: tuple[Size, ...]
    dtype: str | None  # None: the one that the case is run in
    low: float
    high: float
    values: Array | None
    is_constant: bool

    def draw(self, sizes: Sizes, default: str, random: np.random.Generator) -> Array:
        """The values of one run."""
        dtype = DType(self.dtype or default)
        if self.values is not None:
            return self.values.astype(dtype.numpy)
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        if dtype is DType.BOOL:
            return np.asarray(random.random(shape) < 0.5)
        if dtype.is_float:
            return np.asarray(random.uniform(self.low, self.high, shape)).astype(dtype.numpy)
        return np.asarray(random.integers(int(self.low), int(self.high) + 1, shape)).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A live integer, by its name among the live sizes."""

    name: str


Leaf: TypeAlias = TensorArgument | Symbol
Argument: TypeAlias = Any  # a leaf, a list with leaves in it, or a plain value


def tensor(
    *shape: Size, dtype: str | None = None, low: float = -3, high: float = 3, values: Any = None
) -> TensorArgument:
    """An input of the graph."""
    given = None if values is None else np.asarray(values)
    return TensorArgument(given.shape if given is not None else shape, dtype, low, high, given, False)


def weight(
    *shape: int, dtype: str | None = None, low: float = -3, high: float = 3, values: Any = None
) -> TensorArgument:
    """A constant of the graph."""
    given = None if values is None else np.asarray(values)
    return TensorArgument(given.shape if given is not None else shape, dtype, low, high, given, True)


def leaves(arguments: Sequence[Argument]) -> Iterator[Leaf]:
    """The tensors and live integers among arguments, lists followed."""
    for argument in arguments:
        if isinstance(argument, (TensorArgument, Symbol)):
            yield argument
        elif isinstance(argument, list):
            yield from leaves(argument)


def substitute(
    argument: Argument, values: Mapping[Leaf, Any], make_list: Callable[[list[Any]], Any] = list
) -> Any:
    """An argument with its leaves replaced by values."""
    if isinstance(argument, (TensorArgument, Symbol)):
        return values[argument]
    if isinstance(argument, list):
        return make_list([substitute(item, values, make_list) for item in argument])
    return argument
