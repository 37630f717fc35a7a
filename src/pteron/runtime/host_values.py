"""What an ExecuTorch value holds while a method runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pteron.dtypes import DType
from pteron.format import EValue, TensorRecord
from pteron.graph import Shape
from pteron.ops.operand import HostArray
from pteron.runtime.tensors import GpuTensor, HostResult


@dataclass(frozen=True, slots=True, eq=False)
class HostTensor:
    """A tensor in host memory, as NumPy holds it; bf16 as its raw bits."""

    array: HostArray
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Unset:
    """A tensor that nothing has written yet; kernels that write it ask for its element type."""

    dtype: DType


RuntimeTensor: TypeAlias = HostTensor | GpuTensor | HostResult | Unset
RuntimeValue: TypeAlias = RuntimeTensor | int | float | str | tuple["RuntimeValue", ...] | None


def fits(value: RuntimeValue, record: EValue) -> bool:
    """Whether a value is a tensor within what the program declares."""
    if not isinstance(value, (HostTensor, GpuTensor, HostResult)) or not isinstance(record, TensorRecord):
        return False
    shape = _shape(value)
    if value.dtype is not record.dtype or len(shape) != len(record.sizes):
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
