"""Tensors of a checkpoint enter; constants of a graph leave: floats, or integers with scales.

Data are made when the program is written. A matrix is then read once: its scales are kept from the pass over
its integers until they are written, which is right after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.format.program_writer import StreamedData
from pteron.format.stored_tensor import Groups, StoredTensor
from pteron.llm.network.quantize import (
    Rounding,
    group_sums,
    pack_4_bits,
    quantize_4_bits,
    quantize_8_bits,
    quantize_groups,
)

AnyArray: TypeAlias = npt.NDArray[Any]
_F16_MAX = np.float32(np.finfo(np.float16).max)


def float_data(tensor: StoredTensor, dtype: DType) -> StreamedData:
    """A tensor as floats."""
    size = prod(tensor.shape) * dtype.itemsize
    return StreamedData(size, lambda: (to_float(block, dtype) for block in tensor.blocks()))


def to_float(values: AnyArray, dtype: DType) -> AnyArray:
    """f32, or f16 with values beyond its range clipped, as ExecuTorch's exporter does."""
    if dtype is DType.F16:
        return np.clip(values, -_F16_MAX, _F16_MAX).astype(np.float16)
    return np.asarray(values, np.float32)


class QuantizedMatrix:
    """`blocks` yields blocks of all rows: integers, as the program has them, and arrays to keep, one row of
    each per row of the matrix."""

    def __init__(
        self, rows: int, blocks: Callable[[], Iterator[tuple[AnyArray, tuple[AnyArray, ...]]]]
    ) -> None:
        self.rows, self._blocks = rows, blocks
        self._kept: list[tuple[AnyArray, ...]] = []
        self._readers = 0  # data that need what is kept

    def integers(self, row_bytes: int) -> StreamedData:
        return StreamedData(self.rows * row_bytes, self._integers)

    def kept(self, index: int, size: int, finish: Callable[[AnyArray], AnyArray]) -> StreamedData:
        """One of the kept arrays, after a last change of its layout."""
        self._readers += 1

        def blocks() -> Iterable[AnyArray]:
            if not self._kept:
                for _ in self._integers():
                    pass
            whole = np.concatenate([arrays[index] for arrays in self._kept])
            self._readers -= 1
            if self._readers == 0:
                self._kept = []
            return [finish(whole)]

        return StreamedData(size, blocks)

    def _integers(self) -> Iterator[AnyArray]:
        kept = []
        for integers, arrays in self._blocks():
            kept.append(arrays)
            yield integers
        self._kept = kept


def matrix_8_bits(tensor: StoredTensor) -> QuantizedMatrix:
    """Keeps scales [rows]."""

    def blocks() -> Iterator[tuple[AnyArray, tuple[AnyArray, ...]]]:
        for rows in tensor.blocks():
            integers, scales = quantize_8_bits(rows)
            yield integers, (scales,)

    return QuantizedMatrix(tensor.rows, blocks)


def matrix_groups(tensor: StoredTensor, group: int) -> QuantizedMatrix:
    """Keeps scales [rows, groups], and minima of the same shape if the file has them. A tensor of floats is
    rounded in groups of `group` columns."""

    def blocks() -> Iterator[tuple[AnyArray, tuple[AnyArray, ...]]]:
        for each in tensor.blocks_of_groups() if tensor.groups else _rounded(tensor, group):
            yield each.integers, (each.scales,) if each.minima is None else (each.scales, each.minima)

    return QuantizedMatrix(tensor.rows, blocks)


def _rounded(tensor: StoredTensor, group: int) -> Iterator[Groups]:
    return (quantize_groups(rows, group) for rows in tensor.blocks())


def matrix_4_bits(tensor: StoredTensor, group: int, rounding: Rounding, *, sums: bool) -> QuantizedMatrix:
    """Keeps scales [rows, groups], and with `sums` each group's sum of integers."""
    columns = aligned(tensor.shape[1], 8)

    def blocks() -> Iterator[tuple[AnyArray, tuple[AnyArray, ...]]]:
        for rows in tensor.blocks():
            integers, scales = quantize_4_bits(rows, group, rounding)
            kept = (scales, group_sums(integers, group)) if sums else (scales,)
            yield pack_4_bits(integers, columns), kept

    return QuantizedMatrix(tensor.rows, blocks)


def transposed(to: int) -> Callable[[AnyArray], AnyArray]:
    """[rows, groups] -> [groups, rows], with rows of zeros up to a multiple of `to`."""
    return lambda array: np.pad(array.T, ((0, 0), (0, aligned(len(array), to) - len(array))))


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to
