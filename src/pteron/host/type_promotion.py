"""Element types that meet in an operator: the one that PyTorch computes in, and numbers in it."""

from __future__ import annotations

from functools import reduce
from math import isinf
from typing import Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.gpu.tensors import bf16_bits, numbers
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray

NumpyType = np.dtype[Any]
# In f16 and bf16 PyTorch rounds as its kernels like: those are its own.
_COVERED = frozenset(DType) - {DType.F16, DType.BF16}


class NeedsTorch(Exception):  # noqa: N818  # no error: somebody else takes over
    """What NumPy's version of an operator leaves to PyTorch."""


def result_type(*operands: HostTensor | float) -> NumpyType:
    """The type that PyTorch computes in. Tensors with dims outweigh those without, and these outweigh
    numbers, unless what weighs less is of a higher kind: booleans, integers, floats."""
    weights: list[list[NumpyType]] = [[], [], []]
    for operand in operands:
        if not isinstance(operand, HostTensor):
            weights[0].append(_type_of_number(operand))
        elif operand.dtype in _COVERED:
            weights[2 if operand.array.ndim else 1].append(operand.dtype.numpy)
        else:
            raise NeedsTorch(f"elements of {operand.dtype}")
    found = [reduce(_promoted, types) for types in weights if types]
    return reduce(_outweighed, found)


def _type_of_number(number: float) -> NumpyType:
    kind = np.bool_ if isinstance(number, bool) else np.int64 if isinstance(number, int) else np.float32
    return np.dtype(kind)


def _promoted(a: NumpyType, b: NumpyType) -> NumpyType:
    """Of two that weigh the same. A float stays as it is beside any integer."""
    if a.kind == "f" and b.kind != "f":
        return a
    return b if b.kind == "f" and a.kind != "f" else np.promote_types(a, b)


def _outweighed(lighter: NumpyType, heavier: NumpyType) -> NumpyType:
    if heavier.kind == "f":
        return heavier
    return _promoted(heavier, lighter) if heavier.kind == "b" or lighter.kind == "f" else heavier


def in_type(operand: HostTensor | float, kind: NumpyType) -> HostArray:
    """A tensor or a number in the type that is computed in."""
    if isinstance(operand, HostTensor):
        return operand.array.astype(kind, copy=False)
    return number_as(operand, DType.of(kind))


def number_as(number: float, dtype: DType | None) -> HostArray:
    """A number as one element; NeedsTorch where the type has none for it."""
    assert dtype is not None
    if dtype.is_float:
        with np.errstate(over="ignore"):
            single = np.asarray(number, np.float64 if dtype is DType.F64 else np.float32)
            made = bf16_bits(single) if dtype is DType.BF16 else single.astype(dtype.numpy)
        meant = numbers(made, dtype)
        is_lost = not isinf(number) and bool(np.isinf(meant))
        if is_lost or (dtype in (DType.F16, DType.BF16) and meant != number):
            raise NeedsTorch(f"{number} in {dtype}")
        return made
    if dtype is DType.BOOL:
        return np.asarray(bool(number))
    bounds = np.iinfo(cast(Any, dtype.numpy))
    if isinstance(number, float) or not bounds.min <= number <= bounds.max:
        raise NeedsTorch(f"{number} in {dtype}")
    return np.asarray(number, dtype.numpy)
