"""Tensors between host and GPU: inputs and outputs of calls, and their conversions."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, DtypeError, ShapeError
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops.operand import HostArray

if TYPE_CHECKING:
    import torch

    from pteron.gpu import Buffer, Device, Readback

_CPU = (1, 0)  # DLPack's device type and index
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_F32, _F16 = np.dtype(np.float32), np.dtype(np.float16)
_MANY = 4096  # elements


class GpuTensor:
    """A tensor that stays on the GPU: an output of one call and an input of another. It owns its memory."""

    def __init__(self, device: Device, buffer: Buffer, shape: Shape, dtype: DType, storage: Storage) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = shape
        self.dtype = dtype
        self.storage = storage
        # Not at exit: threads may still be in calls that use it.
        weakref.finalize(self, device.free, buffer).atexit = False

    def __repr__(self) -> str:
        return f"<pteron.GpuTensor {self.dtype}{list(self.shape)} on {self.device.name}>"

    @property
    def nbytes(self) -> int:
        """Bytes on the GPU."""
        return numel(self.shape) * self.storage.itemsize

    def numpy(self) -> HostArray:
        """A copy on the host, after all commands submitted so far."""
        return self.fetch().numpy()

    def fetch(self) -> HostResult:
        """The same copy, submitted now and read later: commands that are submitted later do not delay it."""
        if self.device.is_closed:
            raise DeviceError(f"{self!r}: its device is closed")
        fetch = Fetch(*self.device.begin_read(self.buffer, self.nbytes))
        return HostResult(fetch, 0, self.shape, self.dtype, self.storage)

    def torch(self) -> torch.Tensor:
        """A copy as a PyTorch tensor on the CPU."""
        return to_torch(self.numpy(), self.dtype)

    def item(self) -> Any:
        """The only element, as a Python number."""
        if numel(self.shape) != 1:
            raise ShapeError(f"{self!r} has {numel(self.shape)} elements; only one becomes a number")
        return widen_bf16(self.numpy(), self.dtype).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def _repr_html_(self) -> str:
        from html import escape  # here: only notebooks need it

        return f"<code>{escape(repr(self))}</code>"

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU: other libraries cannot use WebGPU buffers, so they get a copy."""
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A copy on the host for `np.from_dlpack(tensor)`, `torch.from_dlpack(tensor)` and others."""
        if dl_device not in (None, _CPU) or copy is False:
            raise BufferError(f"{self!r} can only be copied to the CPU")
        if self.dtype is DType.BF16:  # NumPy has no bf16
            return self.torch().__dlpack__()
        array: Any = self.numpy()
        return array.__dlpack__()  # DLPack version 0, which all libraries accept

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        if copy is False:
            raise ValueError(f"{self!r} can only be copied to the host")
        array = self.numpy()
        return array if dtype in (None, array.dtype) else widen_bf16(array, self.dtype).astype(dtype)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a GPU buffer that something else owns: valid until that memory is reused."""

    buffer: Buffer
    offset: int  # bytes
    shape: Shape
    dtype: DType
    storage: Storage

    @property
    def nbytes(self) -> int:
        return numel(self.shape) * self.storage.itemsize

    def last_row(self) -> View:
        """The last of its rows."""
        width = self.shape[-1]
        offset = self.offset + self.nbytes - width * self.storage.itemsize
        return View(self.buffer, offset, (1, width), self.dtype, self.storage)


class Fetch:
    """Outputs of one submission that the host reads from one staging buffer."""

    def __init__(self, readback: Readback, submission: int | None = None, count: int = 1) -> None:
        self.staging = readback.staging
        self.submission = submission  # None: not submitted yet
        self._readback = readback
        self._unread = count  # outputs

    def fill(self, array: HostArray, offset: int) -> None:
        """Copy an output to an array of the element type that its GPU buffer has."""
        self._readback.fill(array, offset, self.submission)
        self._unread -= 1
        if self._unread == 0:
            self._readback.release()


class HostResult:
    """An output for the host; the wait for the GPU happens at the first read."""

    def __init__(self, fetch: Fetch, offset: int, shape: Shape, dtype: DType, storage: Storage) -> None:
        self._fetch: Fetch | None = fetch  # None: it is read
        self._offset = offset
        self.shape = shape
        self.dtype = dtype
        self._storage = storage
        self._array: HostArray | None = None
        self._is_shared = False  # a caller has the array

    def own(self) -> HostArray:
        """The array, or a copy if another caller has it: the caller may write to it."""
        array = self.numpy()
        array, self._is_shared = array.copy() if self._is_shared else array, True
        return array

    def fill(self, target: HostArray) -> None:
        """Copy to an array of its shape and element type; from the staging buffer, if the types are equal."""
        if self._fetch is not None and target.dtype == self._storage.numpy and target.flags.c_contiguous:
            self._read_to(target)
            self._is_shared = True
        else:
            np.copyto(target, self.numpy())

    def numpy(self) -> HostArray:
        if self._array is None:
            self._read_to(np.empty(self.shape, self._storage.numpy))
        assert self._array is not None
        return self._array

    def _read_to(self, stored: HostArray) -> None:
        assert self._fetch is not None
        self._fetch.fill(stored, self._offset)
        self._array, self._fetch = as_declared(stored, self.dtype), None

    @property
    def submission(self) -> int | None:
        """What to wait for; None if the output is read."""
        return self._fetch.submission if self._fetch else None

    @submission.setter
    def submission(self, number: int) -> None:
        if self._fetch:
            self._fetch.submission = number


def to_storage(array: HostArray, dtype: DType, storage: Storage) -> HostArray:
    """A host array in the element type its GPU buffer has."""
    if array.dtype == storage.numpy:
        return np.ascontiguousarray(array)
    array = widen_bf16(array, dtype)
    if dtype is DType.I64 and array.size:
        low, high = extremes(array)
        if low < _INT32_MIN or high > _INT32_MAX:
            raise DtypeError(f"values beyond 32 bits, from {low} to {high}")
    return _converted(np.ascontiguousarray(array), storage.numpy)


def _converted(array: HostArray, to: np.dtype[Any]) -> HostArray:
    """The elements in another type. Of many, f32 and f16 are converted by the C library, if there is one."""
    way = {(_F32, _F16): 0, (_F16, _F32): 1}.get((array.dtype, to))
    if way is None or array.size < _MANY:
        return array.astype(to, copy=False)
    from pteron.gpu.encode import converters  # imports wgpu, which tools without a device do not need

    functions = converters()
    if functions is None:
        return array.astype(to)
    array = np.ascontiguousarray(array)
    out = np.empty(array.shape, to)
    functions[way](array.ctypes.data, out.ctypes.data, array.size)
    return out


def extremes(array: HostArray) -> tuple[int, int]:
    """The minimum and maximum of integers; fast for a single one, the input of a decode step."""
    if array.size == 1:
        only = int(array.item())
        return only, only
    return int(array.min()), int(array.max())


def widen_bf16(array: HostArray, dtype: DType) -> HostArray:
    """The array itself, or for raw bits of bf16 their values in f32."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype is DType.BF16 else array


def bf16_bits(array: HostArray) -> HostArray:
    """Numbers as raw bits of bf16, rounded to nearest even; NaN stays NaN."""
    rounded = array.astype(np.float32)
    bits = rounded.view(np.uint32)
    upper = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(rounded), np.uint16(0x7FC0), upper)


def as_declared(stored: HostArray, dtype: DType) -> HostArray:
    """Elements of a GPU buffer in the program's type; the same array if the types are equal."""
    if dtype is DType.BF16:
        return bf16_bits(stored)
    return _converted(stored, dtype.numpy)


def to_torch(array: HostArray, dtype: DType) -> torch.Tensor:
    """A host array as a tensor over the same memory."""
    import torch

    tensor = torch.from_numpy(array.copy() if any(step < 0 for step in array.strides) else array)
    return tensor.view(torch.bfloat16) if dtype is DType.BF16 else tensor


def from_torch(tensor: torch.Tensor) -> tuple[HostArray, DType]:
    """A tensor as an array with its element type; on the CPU they share memory."""
    import torch

    if tensor.device.type == "meta":
        raise DtypeError(f"a meta tensor has a shape, {list(tensor.shape)}, but no elements")
    if tensor.layout is not torch.strided:
        raise DtypeError(
            f"a tensor of layout {tensor.layout}; expected a dense one; x.to_dense() converts it"
        )
    try:
        dense = tensor.detach().cpu().resolve_neg()
        if dense.dtype is torch.bfloat16:
            return dense.view(torch.uint16).numpy(), DType.BF16
        array = dense.numpy()
    except Exception as error:  # quantized, batched or traced tensors
        reason = str(error).partition("\n")[0]
        raise DtypeError(f"a tensor of {tensor.dtype} on {tensor.device} cannot be read: {reason}") from error
    dtype = DType.of(array.dtype)
    if dtype is None:
        raise DtypeError(f"tensors of {tensor.dtype} are not supported")
    return array, dtype
