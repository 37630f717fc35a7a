"""The values of a method while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pteron.dtypes import DType
from pteron.format.records import EValue, TensorRecord
from pteron.graph import Shape
from pteron.host.tensors import GpuTensor, HostResult
from pteron.ops.operand import HostArray


@dataclass(frozen=True, slots=True, eq=False)
class HostTensor:
    """A tensor in host memory, as a NumPy array; bf16 as its raw bits.

    A writable array belongs to the call that holds it. Arrays of the caller, of a file and of the state
    between calls are read-only.
    """

    array: HostArray
    dtype: DType
    rows: GrowableRows | None = None  # whose first part is the array

    def protected(self) -> HostTensor:
        """The same tensor, read-only."""
        view = self.array.view()
        view.flags.writeable = False
        return HostTensor(view, self.dtype)


class GrowableRows:
    """Rows in memory that doubles when it is full, so that appending one copies no others."""

    __slots__ = ("_memory", "count")

    def __init__(self, rows: HostArray) -> None:
        self._memory = rows
        self.count = len(rows)

    def put(self, index: int, row: HostArray) -> HostArray:
        """Append a row, or overwrite the last one; returns all rows up to it."""
        if index >= len(self._memory):
            grown = np.empty((2 * index, *row.shape), self._memory.dtype)
            grown[:index] = self._memory[:index]
            self._memory = grown
        self._memory[index] = row
        self.count = index + 1
        return self._memory[: self.count]


@dataclass(frozen=True, slots=True, eq=False)
class UnsetTensor:
    """A tensor that nothing has written yet; kernels that write it read its element type."""

    dtype: DType


RuntimeTensor: TypeAlias = HostTensor | GpuTensor | HostResult | UnsetTensor
RuntimeValue: TypeAlias = RuntimeTensor | int | float | str | tuple["RuntimeValue", ...] | None


def fits(value: RuntimeValue, record: EValue) -> bool:
    """Whether a value is a tensor within what the program declares."""
    if not isinstance(value, (HostTensor, GpuTensor, HostResult)) or not isinstance(record, TensorRecord):
        return False
    return value.dtype is record.dtype and shape_fits(_shape(value), record)


def shape_fits(shape: Shape, record: TensorRecord) -> bool:
    """Whether a shape is within what the program declares."""
    if len(shape) != len(record.sizes):
        return False
    if record.dynamism == "static":
        return shape == record.sizes
    return record.dynamism == "unbound" or all(
        live <= most for live, most in zip(shape, record.sizes, strict=True)
    )


def describe(value: RuntimeValue) -> str:
    """A value as error messages show it."""
    if isinstance(value, (HostTensor, GpuTensor, HostResult)):
        return f"a tensor {value.dtype}{list(_shape(value))}"
    return type(value).__name__


def _shape(tensor: HostTensor | GpuTensor | HostResult) -> Shape:
    return tensor.array.shape if isinstance(tensor, HostTensor) else tensor.shape
