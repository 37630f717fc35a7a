"""A tensor of a checkpoint, read in blocks of rows as float32: no tensor has to be in memory as a whole.

Readers of checkpoints make these; families rearrange them (split, permuted, transposed) without reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float32]
BLOCK_ELEMENTS = 1 << 20  # per block: 4 MB as float32


@dataclass(frozen=True)
class StoredTensor:
    """`read_rows(start, stop)` gives rows of the first dimension; a scalar counts as one row."""

    shape: tuple[int, ...]
    read_rows: Callable[[int, int], Array]

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> StoredTensor:
        """A tensor that is in memory already."""
        values = np.asarray(array, np.float32)
        return cls(values.shape, lambda start, stop: values[start:stop])

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    def blocks(self) -> Iterator[Array]:
        """All rows in order, some at a time."""
        step = max(1, BLOCK_ELEMENTS // max(1, prod(self.shape[1:])))
        for start in range(0, self.rows, step):
            yield self.read_rows(start, min(start + step, self.rows))

    def read(self) -> Array:
        """The whole tensor."""
        return self.read_rows(0, self.rows).reshape(self.shape)

    def mapped(self, function: Callable[[Array], Array]) -> StoredTensor:
        """Each element changed by a function, such as 1 + x."""
        return StoredTensor(self.shape, lambda start, stop: function(self.read_rows(start, stop)))

    def sliced(self, first: int, end: int) -> StoredTensor:
        """Some rows, such as those of the keys in a matrix of queries, keys and values."""
        assert 0 <= first <= end <= self.rows
        shape = (end - first, *self.shape[1:])
        return StoredTensor(shape, lambda start, stop: self.read_rows(first + start, first + stop))

    def rearranged(self, function: Callable[[Array], Array]) -> StoredTensor:
        """The result of a function of the whole tensor that moves its elements, such as a transposition."""
        shape = function(np.broadcast_to(np.float32(0), self.shape)).shape
        return RearrangedTensor(shape, lambda start, stop: function(self.read())[start:stop])


@dataclass(frozen=True)
class RearrangedTensor(StoredTensor):
    """Its blocks come from one read of the whole tensor."""

    def blocks(self) -> Iterator[Array]:
        yield from StoredTensor.of(self.read()).blocks()
