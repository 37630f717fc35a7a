"""Comparisons, logic and choices of each element by itself, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.host.elementwise import Operand, Out, each
from pteron.host.numpy_operators import Result, define
from pteron.host.type_promotion import NeedsTorch, in_type, number_as, result_type
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray

_BOOL = np.dtype(np.bool_)


def _define_comparison(name: str, function: Callable[..., Any]) -> None:
    @define(f"{name}.Tensor_out", "Tensor self, Tensor other")
    @define(f"{name}.Scalar_out", "Tensor self, number other")
    def compare(a: HostTensor, b: Operand, out: Out) -> Result:
        return each(out, _BOOL, result_type(a, b), function, a, b)


def _define_logic(name: str, function: Callable[..., Any]) -> None:
    @define(f"logical_{name}.out", "Tensor self, Tensor other")
    def combine(a: HostTensor, b: HostTensor, out: Out) -> Result:
        return each(out, _BOOL, result_type(a, b), function, a, b)


def _define_bits(name: str, function: Callable[..., Any]) -> None:
    @define(f"bitwise_{name}.Tensor_out", "Tensor self, Tensor other")
    @define(f"bitwise_{name}.Scalar_out", "Tensor self, number other")
    def combine(a: HostTensor, b: Operand, out: Out) -> Result:
        kind = result_type(a, b)
        if kind.kind == "f":
            raise HostError("floats have no bits to combine")
        return each(out, kind, kind, function, a, b)


for _name, _function in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}.items():  # fmt: skip
    _define_comparison(_name, _function)
for _name, _logical, _bits in (
    ("and", np.logical_and, np.bitwise_and),
    ("or", np.logical_or, np.bitwise_or),
    ("xor", np.logical_xor, np.bitwise_xor),
):
    _define_logic(_name, _logical)
    _define_bits(_name, _bits)


@define("logical_not.out", "Tensor self")
def _logical_not(a: HostTensor, out: Out) -> Result:
    return each(out, _BOOL, result_type(a), np.logical_not, a)


@define("bitwise_not.out", "Tensor self")
def _bitwise_not(a: HostTensor, out: Out) -> Result:
    kind = result_type(a)
    if kind.kind == "f":
        raise HostError("floats have no bits to turn")
    return each(out, kind, kind, np.invert, a)


@define("isnan.out", "Tensor self")
def _isnan(a: HostTensor, out: Out) -> Result:
    return each(out, _BOOL, result_type(a), lambda array: array != array, a)


@define("isinf.out", "Tensor self")
def _isinf(a: HostTensor, out: Out) -> Result:
    return each(out, _BOOL, result_type(a), lambda array: abs(array) == np.inf, a)


@define("where.self_out", "Tensor condition, Tensor self, Tensor other")
def _where(condition: HostTensor, a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    if condition.dtype is not DType.BOOL:
        raise NeedsTorch(f"a condition of {condition.dtype}")
    shape = each(out, kind, kind, np.add, condition, a, b).shape

    def make() -> HostArray:
        return np.where(condition.array, in_type(a, kind), in_type(b, kind))

    return Result(shape, make)


@define("masked_fill.Scalar_out", "Tensor self, Tensor mask, number value")
def _masked_fill(a: HostTensor, mask: HostTensor, value: float, out: Out) -> Result:
    if mask.dtype is not DType.BOOL:
        raise HostError(f"a mask of {mask.dtype}")
    element = number_as(value, a.dtype)
    shape = each(out, a.dtype.numpy, a.dtype.numpy, np.add, a, mask).shape
    return Result(shape, lambda: np.where(mask.array, element, a.array))
