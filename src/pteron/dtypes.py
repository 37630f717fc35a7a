"""Element types: in files, in NumPy, in WGSL."""

from __future__ import annotations

from enum import Enum

import numpy as np


class DType(Enum):
    """An element type of a program or delegate tensor."""

    BOOL = "bool"
    U8 = "u8"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    __hash__ = object.__hash__  # members are singletons

    def __str__(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type; bf16, which NumPy lacks, is its raw 16 bits."""
        return _NUMPY[self]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The same, by the name that NumPy looks for: a DType is valid wherever NumPy takes a type."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element in files and in host arrays."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.F16, DType.BF16, DType.F32, DType.F64)

    @classmethod
    def of(cls, dtype: np.dtype[np.generic]) -> DType | None:
        """The element type of a NumPy array; None if Pteron does not support it."""
        return _FROM_NUMPY.get(dtype)


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.U8: np.dtype(np.uint8),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
# Element types by their numbers in files and in the arguments of operators.
SCALAR_TYPES = {
    0: DType.U8, 1: DType.I8, 2: DType.I16, 3: DType.I32, 4: DType.I64, 5: DType.F16, 6: DType.F32,
    7: DType.F64, 11: DType.BOOL, 15: DType.BF16,
}  # fmt: skip
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items() if dtype is not DType.BF16}


class Storage(Enum):
    """The WGSL type of a tensor's elements in a GPU buffer.

    Narrow integers and booleans take a 32-bit word each, so that no two threads write the same word; 64-bit
    types become 32-bit types, as in the exporter.
    """

    F32 = "f32"
    F16 = "f16"
    I32 = "i32"
    U32 = "u32"

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return _STORAGE_NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element in a GPU buffer."""
        return self.numpy.itemsize

    @classmethod
    def of(cls, dtype: DType, *, shader_f16: bool) -> Storage:
        """The storage of a type; f16 becomes f32 if the adapter has no f16."""
        if dtype is DType.F16:
            return cls.F16 if shader_f16 else cls.F32
        return _STORAGE[dtype]


_STORAGE = {
    DType.BOOL: Storage.U32,
    DType.U8: Storage.U32,
    DType.I8: Storage.I32,
    DType.I16: Storage.I32,
    DType.I32: Storage.I32,
    DType.I64: Storage.I32,
    DType.BF16: Storage.F32,
    DType.F32: Storage.F32,
    DType.F64: Storage.F32,
}
_STORAGE_NUMPY: dict[Storage, np.dtype[np.generic]] = {
    Storage.F32: np.dtype(np.float32),
    Storage.F16: np.dtype(np.float16),
    Storage.I32: np.dtype(np.int32),
    Storage.U32: np.dtype(np.uint32),
}
