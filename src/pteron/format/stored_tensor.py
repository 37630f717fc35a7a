"""A tensor of a checkpoint, read in blocks of rows as float32: no tensor has to be in memory as a whole.

Readers of checkpoints make these; families rearrange them (split, permuted, transposed) without reading.
Tensors that the file has as integers in groups can be read as such, too (`Groups`), after every rearrangement
that keeps groups whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float32]
BLOCK_ELEMENTS = 1 << 18  # per block: 1 MB as float32, which the allocator reuses without new pages
T = TypeVar("T")


@dataclass(frozen=True)
class Groups:
    """Weights scale · integer + minimum, where each group of columns shares a scale and perhaps a minimum."""

    integers: npt.NDArray[np.int8]  # [..., columns]
    scales: Array  # [..., groups]
    minima: Array | None = None  # [..., groups]

    def each(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Groups:
        """A function of every array."""
        minima = None if self.minima is None else function(self.minima)
        return Groups(function(self.integers), function(self.scales), minima)

    def scaled(self, factors: Array) -> Groups:
        minima = None if self.minima is None else self.minima * factors
        return Groups(self.integers, self.scales * factors, minima)

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """Rows one after the other."""
        minima = [part.minima for part in parts if part.minima is not None]
        return cls(
            np.concatenate([part.integers for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate(minima) if minima else None,
        )


@dataclass(frozen=True)
class GroupedRows:
    """A tensor as integers in groups of `size` columns."""

    size: int
    has_minima: bool
    read_rows: Callable[[int, int], Groups]

    def sliced(self, first: int) -> GroupedRows:
        """The rows from `first` on."""
        return replace(self, read_rows=lambda start, stop: self.read_rows(first + start, first + stop))

    def scaled(self, factors: Array) -> GroupedRows:
        """Each row times its factor."""
        return replace(
            self, read_rows=lambda start, stop: self.read_rows(start, stop).scaled(factors[start:stop])
        )

    def rearranged(self, shape: tuple[int, ...], function: Callable[[Array], Array]) -> GroupedRows | None:
        """The result of a function that moves the elements of this tensor, which has a shape; None if it
        takes groups apart."""
        move = self._move(shape, function)
        if move is None:
            return None

        def read_rows(start: int, stop: int) -> Groups:
            return move(self.read_rows(0, shape[0])).each(lambda array: array[start:stop])

        return replace(self, read_rows=read_rows)

    def flattened(
        self, shape: tuple[int, ...], rows: int, function: Callable[[Array], Array]
    ) -> GroupedRows | None:
        """Matrices as one, each changed by a function to one of `rows` rows; None if it takes groups
        apart."""
        move = self._move(shape[1:], function)
        if move is None:
            return None

        def matrix(index: int) -> Groups:
            return move(self.read_rows(index, index + 1).each(lambda array: array[0]))

        cached = _last(matrix)
        read = _rows_of(rows, lambda i, a, b: cached(i).each(lambda array: array[a:b]), Groups.joined)
        return replace(self, read_rows=read)

    def _move(
        self, shape: tuple[int, ...], function: Callable[[Any], Any]
    ) -> Callable[[Groups], Groups] | None:
        """What a function that moves elements does to groups: found with the number of its group in place of
        each element."""
        counts = (*shape[:-1], shape[-1] // self.size)
        numbers = np.arange(prod(counts), dtype=np.int32).reshape(counts)
        moved = function(np.repeat(numbers, self.size, -1))
        if moved.ndim != 2 or moved.shape[1] % self.size:
            return None
        groups = moved.reshape(len(moved), -1, self.size)
        if (groups != groups[..., :1]).any():
            return None
        order = np.ascontiguousarray(groups[..., 0])

        def move(rows: Groups) -> Groups:
            minima = None if rows.minima is None else rows.minima.reshape(-1)[order]
            return Groups(function(rows.integers), rows.scales.reshape(-1)[order], minima)

        return move


@dataclass(frozen=True)
class StoredTensor:
    """`read_rows(start, stop)` gives rows of the first dimension; a scalar counts as one row."""

    shape: tuple[int, ...]
    read_rows: Callable[[int, int], Array]
    groups: GroupedRows | None = None  # the same as integers, if the file has them

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
        for start, stop in self._block_rows():
            yield self.read_rows(start, stop)

    def blocks_of_groups(self) -> Iterator[Groups]:
        """The same as integers in groups."""
        assert self.groups is not None
        for start, stop in self._block_rows():
            yield self.groups.read_rows(start, stop)

    def _block_rows(self) -> Iterator[tuple[int, int]]:
        step = max(1, BLOCK_ELEMENTS // max(1, prod(self.shape[1:])))
        for start in range(0, self.rows, step):
            yield start, min(start + step, self.rows)

    def read(self) -> Array:
        """The whole tensor."""
        return self.read_rows(0, self.rows).reshape(self.shape)

    def mapped(self, function: Callable[[Array], Array]) -> StoredTensor:
        """Each element changed by a function, such as 1 + x."""
        return StoredTensor(self.shape, lambda start, stop: function(self.read_rows(start, stop)))

    def scaled_rows(self, factors: Array) -> StoredTensor:
        """Each row times its factor."""
        factors = factors.reshape(-1, *(1,) * (len(self.shape) - 1))
        return StoredTensor(
            self.shape,
            lambda start, stop: self.read_rows(start, stop) * factors[start:stop],
            self.groups and self.groups.scaled(factors),
        )

    def sliced(self, first: int, end: int) -> StoredTensor:
        """Some rows, such as those of the keys in a matrix of queries, keys and values."""
        assert 0 <= first <= end <= self.rows
        shape = (end - first, *self.shape[1:])
        return StoredTensor(
            shape,
            lambda start, stop: self.read_rows(first + start, first + stop),
            self.groups and self.groups.sliced(first),
        )

    def rearranged(self, function: Callable[[Array], Array]) -> StoredTensor:
        """The result of a function of the whole tensor that moves its elements, such as a transposition."""
        shape = function(np.broadcast_to(np.float32(0), self.shape)).shape
        return RearrangedTensor(
            shape,
            lambda start, stop: function(self.read())[start:stop],
            self.groups and self.groups.rearranged(self.shape, function),
        )

    def flattened(self, function: Callable[[Array], Array] = lambda matrix: matrix) -> StoredTensor:
        """A tensor [count, rows, columns] as one matrix [count · rows, columns]. `function` changes each
        matrix first, and may change its shape."""
        rows, columns = function(np.broadcast_to(np.float32(0), self.shape[1:])).shape
        matrix = _last(lambda index: function(self.read_rows(index, index + 1)[0]))
        read = _rows_of(rows, lambda i, a, b: matrix(i)[a:b], np.concatenate)
        groups = self.groups and self.groups.flattened(self.shape, rows, function)
        return StoredTensor((self.rows * rows, columns), read, groups)


def _last(read: Callable[[int], T]) -> Callable[[int], T]:
    """Keeps the matrix that was read last: blocks are smaller."""
    last: list[tuple[int, T]] = []

    def matrix(index: int) -> T:
        if not last or last[0][0] != index:
            last[:] = [(index, read(index))]
        return last[0][1]

    return matrix


def stacked(tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Matrices of the same shape, one after the other."""
    rows, columns = tensors[0].shape
    read = _rows_of(rows, lambda index, start, stop: tensors[index].read_rows(start, stop), np.concatenate)
    each = [tensor.groups for tensor in tensors if tensor.groups]
    groups = None
    if len(each) == len(tensors) and len({(one.size, one.has_minima) for one in each}) == 1:
        read_groups = _rows_of(rows, lambda index, *span: each[index].read_rows(*span), Groups.joined)
        groups = replace(each[0], read_rows=read_groups)
    return StoredTensor((len(tensors) * rows, columns), read, groups)


def _rows_of(
    rows: int, read: Callable[[int, int, int], T], join: Callable[[list[T]], T]
) -> Callable[[int, int], T]:
    """Reads rows of matrices that follow one another; `read` takes a matrix's number and rows of it."""

    def read_rows(start: int, stop: int) -> T:
        parts = [
            read(index, max(start - index * rows, 0), min(stop - index * rows, rows))
            for index in range(start // rows, -(-stop // rows))
        ]
        return parts[0] if len(parts) == 1 else join(parts)

    return read_rows


@dataclass(frozen=True)
class RearrangedTensor(StoredTensor):
    """Its blocks come from one read of the whole tensor."""

    def blocks(self) -> Iterator[Array]:
        yield from StoredTensor.of(self.read()).blocks()

    def blocks_of_groups(self) -> Iterator[Groups]:
        assert self.groups is not None
        yield self.groups.read_rows(0, self.rows)
