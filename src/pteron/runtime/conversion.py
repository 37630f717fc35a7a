"""Converts a caller's inputs to tensors, and outputs to the caller's types: NumPy arrays, PyTorch tensors,
GpuTensors, numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.errors import DtypeError
from pteron.format.records import TensorRecord
from pteron.gpu import Device
from pteron.host.tensors import GpuTensor, HostResult, from_torch, to_storage, to_torch
from pteron.host.values import HostTensor, RuntimeValue
from pteron.ops.operand import HostArray

if TYPE_CHECKING:
    import torch


def is_torch(value: object) -> bool:
    """Whether a value is a PyTorch tensor."""
    return _is_torch_class(type(value))  # type: ignore[arg-type]  # classes are hashable


@lru_cache
def _is_torch_class(kind: type) -> bool:
    """Whether a class is torch.Tensor or a subclass, without importing PyTorch."""
    return any((base.__module__, base.__name__) == ("torch", "Tensor") for base in kind.__mro__)


def as_tensor(expected: TensorRecord, value: object) -> HostTensor | GpuTensor:
    """An input as a tensor, with its own element type."""
    if isinstance(value, np.ndarray):
        return _from_array(expected, np.asarray(value), value)
    if isinstance(value, GpuTensor):
        return value
    if is_torch(value):
        return HostTensor(*from_torch(cast("torch.Tensor", value)))
    if isinstance(value, (bool, int, float, list, tuple)):  # Python values have no element type
        target = expected.dtype.numpy
        try:
            if not np.can_cast(np.asarray(value).dtype, target, "same_kind"):
                raise ValueError(f"got {value!r:.80}")
            return HostTensor(np.asarray(value, target), expected.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise DtypeError(f"expected {expected.dtype}, {error}") from None
    has_dlpack_only = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(value) if has_dlpack_only else np.asarray(value)  # type: ignore[arg-type]
    except Exception as error:  # the value's own methods may raise anything
        problem = f"a {type(value).__name__} cannot be read: {error}"
        raise DtypeError(f"expected {expected.dtype}, and {problem}") from error
    return _from_array(expected, array, value)


def _from_array(expected: TensorRecord, array: HostArray, value: object) -> HostTensor:
    if expected.dtype is DType.BF16 and array.dtype == np.uint16:
        return HostTensor(array, DType.BF16)
    dtype = DType.of(array.dtype)
    if dtype is not None:
        return HostTensor(array, dtype)
    if array.dtype.kind in "OSU" and not isinstance(value, np.ndarray):  # it is no array, whatever NumPy made
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise DtypeError(
            f"expected {expected.dtype}, got {kind}; pass an array, a tensor or a list of numbers"
        )
    advice = "" if array.dtype.kind == "V" else hint(expected.dtype, value)  # V: records
    raise DtypeError(f"expected {expected.dtype}, got {array.dtype}{advice}")


def uploaded(device: Device, value: Any) -> GpuTensor:
    """A copy of an array or a tensor on the GPU."""
    array, found = from_torch(value) if is_torch(value) else (np.asarray(value), None)
    dtype = found or DType.of(array.dtype)
    if dtype is None:
        raise DtypeError(f"{device!r}: arrays of {array.dtype} cannot be uploaded")
    storage = device.target.storage(dtype)
    stored = to_storage(array, dtype, storage)
    with device.lock:
        buffer = device.create_buffer(stored.nbytes, "uploaded tensor")
        tensor = GpuTensor(device, buffer, array.shape, dtype, storage)  # frees the buffer
        if stored.nbytes:
            device.write(buffer, stored)
    return tensor


def hint(dtype: DType, value: object) -> str:
    """How to convert an input to this type, for an error message."""
    if is_torch(value):
        name = "bfloat16" if dtype is DType.BF16 else dtype.numpy.name
        return f"; x.to(torch.{name}) converts it"
    if dtype is DType.BF16:
        return ""
    if isinstance(value, np.ndarray):
        return f"; x.astype(np.{dtype.numpy.name}) converts it"
    return f"; np.asarray(x, np.{dtype.numpy.name}) converts it"


def settled(value: RuntimeValue) -> RuntimeValue:
    """An output to be read later: commands that are submitted later do not delay it, and what the caller does
    with the inputs does not change it."""
    if isinstance(value, GpuTensor):
        return value.fetch()
    return HostTensor(value.array.copy(), value.dtype) if isinstance(value, HostTensor) else value


def result(value: RuntimeValue, torch_out: bool, on_gpu: bool) -> Any:
    """An output as the type that the caller expects."""
    if isinstance(value, GpuTensor) and on_gpu:
        return value
    if isinstance(value, (GpuTensor, HostResult)):
        array = value.numpy() if isinstance(value, GpuTensor) else value.own()
    elif isinstance(value, HostTensor):
        array = value.array.copy()
    else:
        return value
    return to_torch(array, value.dtype) if torch_out else array
