"""QuantizedMatrices: matrices of a checkpoint as integers and scales, which are constants of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.format.program_writer import StreamedData
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.network.graph import GraphBuilder, Tensor
from pteron.llm.network.options import IN_GROUPS, Options
from pteron.llm.network.quantize import ROUNDINGS, round_to_nearest
from pteron.llm.network.weights import (
    QuantizedMatrix,
    aligned,
    matrix_4_bits,
    matrix_8_bits,
    matrix_groups,
    to_float,
    transposed,
)

_TOGETHER = ("wq", "wk", "wv")  # matrices that multiply one x

_InGroups: TypeAlias = tuple[Tensor, Tensor, Tensor | None, int]


class QuantizedMatrices:
    """The quantised matrices of one graph. A table that is also the output matrix is stored once."""

    def __init__(
        self, graph: GraphBuilder, weights: Mapping[str, StoredTensor], options: Options, dtype: DType
    ) -> None:
        self._graph, self._weights, self._options, self._dtype = graph, weights, options, dtype
        self._has_groups = any(tensor.groups for tensor in weights.values())
        self._names: dict[int, str] = {}
        for name, tensor in weights.items():
            self._names.setdefault(id(tensor), name)
        self._in_groups: dict[str, _InGroups] = {}
        self._quantized: dict[str, QuantizedMatrix] = {}

    def key(self, name: str) -> str:
        """A name for the data of a weight: the first of the names that share it."""
        return self._names.setdefault(id(self._weights[name]), name)

    def quantization_of(self, matrix: StoredTensor) -> str | None:
        """The quantisation of a matrix."""
        quantize = self._options.quantize
        return None if quantize == IN_GROUPS and self.stays_float(matrix) else quantize

    def stays_float(self, matrix: StoredTensor) -> bool:
        """Whether it is one of floats that has no groups of the usual size, beside others that the file has
        as integers: such a file needs no other size."""
        is_uneven = bool(matrix.shape[1] % self._options.group_size)
        return self._has_groups and matrix.groups is None and is_uneven

    def in_groups(self, name: str, tensor: StoredTensor) -> _InGroups:
        """Integers, scales and minima [groups, rows], and the group size."""
        key = self.key(name)
        if key not in self._in_groups:
            size, has_minima = self._groups_beside(name, tensor)
            self._check_group(name, tensor, size)
            self._in_groups[key] = self._make_groups(key, tensor, size, has_minima)
        return self._in_groups[key]

    def _make_groups(self, key: str, tensor: StoredTensor, size: int, has_minima: bool) -> _InGroups:
        own, has_own = self._groups_of(tensor)
        matrix, place = matrix_groups(tensor, own), key.removesuffix(".weight")
        data = matrix.integers(tensor.shape[1])
        integers = self._graph.constant(f"{key}.in_groups", DType.I8, tensor.shape, data)
        shape = (tensor.shape[1] // size, tensor.rows)

        def finish(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return transposed(1)(np.repeat(array, own // size, axis=1))

        kept = [
            self._graph.constant(
                f"{place}.{kind}", DType.F32, shape, matrix.kept(index, 4 * prod(shape), finish)
            )
            for index, kind in enumerate(("group_scales", "group_minima")[: 1 + has_own])
        ]
        if has_minima and not has_own:
            zeros = StreamedData(4 * prod(shape))
            kept.append(self._graph.constant(f"{place}.group_minima", DType.F32, shape, zeros))
        return integers, kept[0], kept[1] if has_minima else None, size

    def _groups_of(self, tensor: StoredTensor) -> tuple[int, bool]:
        """(size of its groups, whether they have minima)."""
        groups = tensor.groups
        return (groups.size, groups.has_minima) if groups else (self._options.group_size, False)

    def _groups_beside(self, name: str, tensor: StoredTensor) -> tuple[int, bool]:
        """The same for queries, keys and values alike, whose types differ in many files: so one launch can
        compute all three."""
        place, _, kind = name.removesuffix(".weight").rpartition(".")
        beside = [self._weights.get(f"{place}.{each}.weight") for each in _TOGETHER]
        if kind not in _TOGETHER or not all(beside):
            return self._groups_of(tensor)
        found = [self._groups_of(each) for each in beside if each and not self.stays_float(each)]
        size = min(size for size, _ in found)
        is_whole = len(found) == len(_TOGETHER) and not any(each % size for each, _ in found)
        return (size, any(has for _, has in found)) if is_whole else self._groups_of(tensor)

    def in_8_bits(self, place: str, matrix: StoredTensor) -> tuple[Tensor, Tensor]:
        """Integers and scales of rows."""
        quantized = matrix_8_bits(matrix)
        data = quantized.integers(matrix.shape[1])
        integers = self._graph.constant(f"{place}.weight.8_bits", DType.I8, matrix.shape, data)
        data = quantized.kept(0, matrix.rows * self._dtype.itemsize, self._to_float)
        return integers, self._graph.constant(f"{place}.scales", self._dtype, (matrix.rows,), data)

    def in_4_bits(self, place: str, matrix: StoredTensor) -> tuple[Tensor, Tensor]:
        """Integers and scales [groups, rows]."""
        shape = (matrix.shape[1] // self._options.group_size, aligned(matrix.rows, 4))
        quantized, integers = self._matrix_4_bits(f"{place}.weight", matrix)

        def finish(scales: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
            return self._to_float(transposed(4)(scales))

        data = quantized.kept(0, prod(shape) * self._dtype.itemsize, finish)
        return integers, self._graph.constant(f"{place}.scales", self._dtype, shape, data)

    def sums_4_bits(self, place: str, matrix: StoredTensor) -> Tensor:
        """The sums of integers [groups, rows], which products with 8-bit activations need."""
        shape = (matrix.shape[1] // self._options.group_size, aligned(matrix.rows, 8))
        data = self._quantized_4_bits(f"{place}.weight", matrix).kept(1, prod(shape) * 4, transposed(8))
        return self._graph.constant(f"{place}.sums", DType.I32, shape, data)

    def table_4_bits(self, place: str, table: StoredTensor) -> tuple[Tensor, Tensor]:
        """Integers and scales [rows, groups] of an embedding."""
        shape = (table.rows, table.shape[1] // self._options.group_size)
        quantized, integers = self._matrix_4_bits(f"{place}.weight", table)
        data = quantized.kept(0, prod(shape) * self._dtype.itemsize, self._to_float)
        return integers, self._graph.constant(f"{place}.row_scales", self._dtype, shape, data)

    def _matrix_4_bits(self, name: str, tensor: StoredTensor) -> tuple[QuantizedMatrix, Tensor]:
        """A quantised matrix and its integers."""
        quantized = self._quantized_4_bits(name, tensor)
        shape = (tensor.rows, aligned(tensor.shape[1], 8) // 2)
        data = quantized.integers(shape[1])
        return quantized, self._graph.constant(f"{self.key(name)}.4_bits", DType.U8, shape, data)

    def _quantized_4_bits(self, name: str, tensor: StoredTensor) -> QuantizedMatrix:
        key = self.key(name)
        if key not in self._quantized:
            options = self._options
            self._check_group(name, tensor, options.group_size)
            rounding = ROUNDINGS.get(options.rounding, round_to_nearest)
            has_sums = options.quantize == "8da4w"
            self._quantized[key] = matrix_4_bits(tensor, options.group_size, rounding, sums=has_sums)
        return self._quantized[key]

    def _check_group(self, name: str, tensor: StoredTensor, size: int) -> None:
        if tensor.shape[1] % size:
            shape = " x ".join(map(str, tensor.shape))
            raise UnsupportedError(f"group_size {size} does not divide {name} with {shape}")

    def _to_float(self, array: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
        return to_float(array, self._dtype)
