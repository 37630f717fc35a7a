"""What an ExecuTorch value holds while a method runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pteron.dtypes import DType
from pteron.format import EValue, TensorRecord
from pteron.gpu.tensors import GpuTensor, HostResult
from pteron.graph import Shape
from pteron.ops.operand import HostArray


@dataclass(frozen=True, slots=True, eq=False)
class HostTensor:
    """A tensor in host memory, as NumPy holds it; bf16 as its raw bits.

    An array that can be written to belongs to the call that holds it. What belongs to a caller, to a file or
    to the state between calls is held read-only.
    """

    array: HostArray
    dtype: DType
    rows: GrowableRows | None = None  # that the array is the first of

    def protected(self) -> HostTensor:
        """The same tensor, read-only."""
        view = self.array.view()
        view.flags.writeable = False
        return HostTensor(view, self.dtype)


class GrowableRows:
    """Memory that takes more rows without being copied at each: it doubles when it is full."""

    __slots__ = ("_memory", "count")

    def __init__(self, rows: HostArray) -> None:
        self._memory = rows
        self.count = len(rows)

    def put(self, index: int, row: HostArray) -> HostArray:
        """Write a row at the end, or over the last one; all rows up to it."""
        if index >= len(self._memory):
            grown = np.empty((2 * index, *row.shape), self._memory.dtype)
            grown[:index] = self._memory[:index]
            self._memory = grown
        self._memory[index] = row
        self.count = index + 1
        return self._memory[: self.count]


@dataclass(frozen=True, slots=True, eq=False)
class UnsetTensor:
    """A tensor that nothing has written yet; kernels that write it ask for its element type."""

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
