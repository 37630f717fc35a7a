"""Operators that make tensors of numbers alone, by NumPy."""

from __future__ import annotations

from math import ceil
from typing import Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.numpy_operators import Result, define
from pteron.host.type_promotion import NeedsTorch, number_as
from pteron.host.values import HostTensor, UnsetTensor

Out = HostTensor | UnsetTensor
_F32_WHOLE_MAX = 1 << 24  # whole numbers up to it are exact in f32


def _full(shape: Shape, value: float, out: Out) -> Result:
    if any(size < 0 for size in shape):
        raise HostError(f"a size below 0 in {list(shape)}")
    element = number_as(value, out.dtype)
    return Result(shape, lambda: np.full(shape, element, out.dtype.numpy))


@define("full.out", "List[int] size, number fill_value")
def _full_of(size: Shape, value: float, out: Out) -> Result:
    return _full(size, value, out)


@define("zeros.out", "List[int] size")
def _zeros(size: Shape, out: Out) -> Result:
    return _full(size, 0, out)


@define("ones.out", "List[int] size")
def _ones(size: Shape, out: Out) -> Result:
    return _full(size, 1, out)


@define("full_like.out", "Tensor self, number fill_value, Optional[MemoryFormat] memory_format")
def _full_like(a: HostTensor, value: float, _: object, out: Out) -> Result:
    return _full(a.array.shape, value, out)


@define("scalar_tensor.out", "number s")
def _scalar_tensor(value: float, out: Out) -> Result:
    return _full((), value, out)


@define("arange.out", "number end")
def _arange_to(end: float, out: Out) -> Result:
    return _arange(0, end, 1, out)


@define("arange.start_out", "number start, number end, number step")
def _arange(start: float, end: float, step: float, out: Out) -> Result:
    """Whole numbers, all of them exact in the output's type."""
    is_whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (start, end, step))
    most = max(abs(start), abs(end), abs(step))
    if not is_whole or out.dtype in (DType.BOOL, DType.F16, DType.BF16):
        raise NeedsTorch("numbers that are not whole")
    if most > (_F32_WHOLE_MAX if out.dtype.is_float else np.iinfo(cast(Any, out.dtype.numpy)).max):
        raise NeedsTorch(f"numbers up to {most} in {out.dtype}")
    if step == 0 or (end - start) / step < 0:
        raise HostError(f"no steps of {step} lead from {start} to {end}")
    count = ceil((end - start) / step)
    return Result((count,), lambda: np.arange(start, end, step).astype(out.dtype.numpy))
