"""A tensor of a checkpoint, read in blocks of rows as float32: no tensor has to be in memory as a whole.

Readers of checkpoints make these; families rearrange them (split, permuted, transposed) without reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float32]
BLOCK_ELEMENTS = 1 << 18  # per block: 1 MB as float32, which the allocator reuses without new pages


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

    def scaled_rows(self, factors: Array) -> StoredTensor:
        """Each row times its factor."""
        factors = factors.reshape(-1, *(1,) * (len(self.shape) - 1))
        return StoredTensor(self.shape, lambda start, stop: self.read_rows(start, stop) * factors[start:stop])

    def sliced(self, first: int, end: int) -> StoredTensor:
        """Some rows, such as those of the keys in a matrix of queries, keys and values."""
        assert 0 <= first <= end <= self.rows
        shape = (end - first, *self.shape[1:])
        return StoredTensor(shape, lambda start, stop: self.read_rows(first + start, first + stop))

    def rearranged(self, function: Callable[[Array], Array]) -> StoredTensor:
        """The result of a function of the whole tensor that moves its elements, such as a transposition."""
        shape = function(np.broadcast_to(np.float32(0), self.shape)).shape
        return RearrangedTensor(shape, lambda start, stop: function(self.read())[start:stop])

    def flattened(self, function: Callable[[Array], Array] = lambda matrix: matrix) -> StoredTensor:
        """A tensor [count, rows, columns] as one matrix [count · rows, columns]. `function` changes each
        matrix first, and may change its shape."""
        rows, columns = function(np.broadcast_to(np.float32(0), self.shape[1:])).shape
        last: list[tuple[int, Array]] = []  # the matrix that was read last: blocks are smaller

        def matrix(index: int) -> Array:
            if not last or last[0][0] != index:
                last[:] = [(index, function(self.read_rows(index, index + 1)[0]))]
            return last[0][1]

        return StoredTensor((self.rows * rows, columns), _rows_of(rows, lambda i, a, b: matrix(i)[a:b]))


def stacked(tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Matrices of the same shape, one after the other."""
    rows, columns = tensors[0].shape
    read = _rows_of(rows, lambda index, start, stop: tensors[index].read_rows(start, stop))
    return StoredTensor((len(tensors) * rows, columns), read)


def _rows_of(rows: int, read: Callable[[int, int, int], Array]) -> Callable[[int, int], Array]:
    """Reads rows of matrices that follow one another; `read` takes a matrix's number and rows of it."""

    def read_rows(start: int, stop: int) -> Array:
        parts = [
            read(index, max(start - index * rows, 0), min(stop - index * rows, rows))
            for index in range(start // rows, -(-stop // rows))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return read_rows


@dataclass(frozen=True)
class RearrangedTensor(StoredTensor):
    """Its blocks come from one read of the whole tensor."""

    def blocks(self) -> Iterator[Array]:
        yield from StoredTensor.of(self.read()).blocks()
