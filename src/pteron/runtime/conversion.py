"""What callers give a method and get from it: arrays of NumPy, tensors of PyTorch and on the GPU, numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.errors import DtypeError
from pteron.format import TensorRecord
from pteron.host.tensors import GpuTensor, HostResult, from_torch, to_torch
from pteron.host.values import HostTensor, RuntimeValue
from pteron.ops.operand import HostArray

if TYPE_CHECKING:
    import torch


def is_torch(value: object) -> bool:
    """Whether a value is a PyTorch tensor."""
    return _is_torch_class(type(value))  # type: ignore[arg-type]  # classes are hashable


@lru_cache
def _is_torch_class(kind: type) -> bool:
    """Whether a class is PyTorch's tensor or derived from it: found without importing PyTorch."""
    return any((base.__module__, base.__name__) == ("torch", "Tensor") for base in kind.__mro__)


def as_tensor(expected: TensorRecord, value: object) -> HostTensor | GpuTensor:
    """What was given where a tensor is expected, with the element type that it has."""
    if isinstance(value, np.ndarray):
        return _from_array(expected, np.asarray(value))
    if isinstance(value, GpuTensor):
        return value
    if is_torch(value):
        return HostTensor(*from_torch(cast("torch.Tensor", value)))
    if isinstance(value, (bool, int, float, list, tuple)):  # plain Python has no element type of its own
        target = expected.dtype.numpy
        try:
            if not np.can_cast(np.asarray(value).dtype, target, "same_kind"):
                raise ValueError(f"got {value!r}")
            return HostTensor(np.asarray(value, target), expected.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise DtypeError(f"expected {expected.dtype}, {error}") from None
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever the value's own methods raise
        problem = f"a {type(value).__name__} cannot be read: {error}"
        raise DtypeError(f"expected {expected.dtype}, and {problem}") from error
    return _from_array(expected, array)


def _from_array(expected: TensorRecord, array: HostArray) -> HostTensor:
    if expected.dtype is DType.BF16 and array.dtype == np.uint16:
        return HostTensor(array, DType.BF16)
    dtype = DType.of(array.dtype)
    if dtype is None:
        raise DtypeError(f"expected {expected.dtype}, got {array.dtype}")
    return HostTensor(array, dtype)


def hint(dtype: DType, value: object) -> str:
    """How a tensor of another type becomes one of this."""
    if is_torch(value):
        name = "bfloat16" if dtype is DType.BF16 else dtype.numpy.name
        return f"; x.to(torch.{name}) converts it"
    if dtype is DType.BF16 or not isinstance(value, np.ndarray):
        return ""
    return f"; x.astype(np.{dtype.numpy.name}) converts it"


def result(value: RuntimeValue, torch_out: bool, on_gpu: bool) -> Any:
    """An output as the caller wants it."""
    if isinstance(value, GpuTensor) and on_gpu:
        return value
    if isinstance(value, (GpuTensor, HostResult)):
        array = value.numpy() if isinstance(value, GpuTensor) else value.own()
    elif isinstance(value, HostTensor):
        array = value.array.copy()
    else:
        return value
    return to_torch(array, value.dtype) if torch_out else array
