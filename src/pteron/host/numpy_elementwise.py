"""Operators on each element, and tensors filled with a number, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.numpy_operators import NeedsTorch, Output, define, number_as, shared_type
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray

Operand: TypeAlias = HostTensor | float
Function: TypeAlias = Callable[..., Any]
# Element types by NumPy's kinds: b bool, u unsigned, i signed, f float.
_ANY, _INTEGERS_AND_FLOATS, _FLOATS = "buif", "uif", "f"


def _apply(
    function: Function, kinds: str, out: Output, *operands: Operand, result: DType | None = None
) -> HostArray:
    """Broadcast the operands and apply an elementwise function. All operands have one element type, and the
    result has the same one unless `result` names another."""
    dtype = shared_type(*operands)
    if dtype.numpy.kind not in kinds or out.dtype is not (result or dtype):
        raise NeedsTorch(f"{dtype} written to {out.dtype}")
    arrays = [x.array if isinstance(x, HostTensor) else number_as(x, dtype) for x in operands]
    _check_broadcast(*arrays)
    return np.asarray(function(*arrays), out.dtype.numpy)


def _check_broadcast(*arrays: HostArray) -> None:
    try:
        np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise HostError(f"shapes {shapes} cannot be broadcast") from None


# Functions of one tensor, of two tensors, and of a tensor and a number -----------------------------

_UNARY: dict[str, tuple[Function, str]] = {
    "abs": (np.abs, _INTEGERS_AND_FLOATS),
    "bitwise_not": (np.invert, "bui"),
    "ceil": (np.ceil, _FLOATS),
    "floor": (np.floor, _FLOATS),
    "neg": (np.negative, _INTEGERS_AND_FLOATS),
    "relu": (lambda array: np.maximum(array, 0), _INTEGERS_AND_FLOATS),
    "round": (np.rint, _FLOATS),
    "sqrt": (np.sqrt, _FLOATS),
    "trunc": (np.trunc, _FLOATS),
}
_TESTS: dict[str, Function] = {
    "isinf": lambda array: abs(array) == np.inf,
    "isnan": lambda array: array != array,
    "logical_not": np.logical_not,
}
# Operators of two tensors (`Tensor_out`, or `out`) or a tensor and a number (`Scalar_out`).
_BINARY: dict[str, tuple[Function, str]] = {
    "add.out add.Scalar_out": (np.add, _ANY),
    "bitwise_and.Tensor_out bitwise_and.Scalar_out": (np.bitwise_and, "bui"),
    "bitwise_or.Tensor_out bitwise_or.Scalar_out": (np.bitwise_or, "bui"),
    "bitwise_xor.Tensor_out bitwise_xor.Scalar_out": (np.bitwise_xor, "bui"),
    "div.out div.Scalar_out": (np.divide, _FLOATS),
    "maximum.out": (np.maximum, _ANY),
    "minimum.out": (np.minimum, _ANY),
    "mul.out mul.Scalar_out": (np.multiply, _ANY),
    "sub.out sub.Scalar_out": (np.subtract, _INTEGERS_AND_FLOATS),
}
_COMPARISONS: dict[str, Function] = {
    "eq.Tensor_out eq.Scalar_out": np.equal,
    "ge.Tensor_out ge.Scalar_out": np.greater_equal,
    "gt.Tensor_out gt.Scalar_out": np.greater,
    "le.Tensor_out le.Scalar_out": np.less_equal,
    "logical_and.out": np.logical_and,
    "logical_or.out": np.logical_or,
    "logical_xor.out": np.logical_xor,
    "lt.Tensor_out lt.Scalar_out": np.less,
    "ne.Tensor_out ne.Scalar_out": np.not_equal,
}


def _define_unary(name: str, function: Function, kinds: str, result: DType | None = None) -> None:
    define(f"{name}.out", "Tensor self")(lambda a, out: _apply(function, kinds, out, a, result=result))


def _define_binary(name: str, function: Function, kinds: str, result: DType | None = None) -> None:
    def combine(a: HostTensor, b: Operand, *rest: Any) -> HostArray:
        if rest[:-1] not in ((), (1,)):
            raise NeedsTorch(f"alpha {rest[0]}")  # PyTorch multiplies and adds in one rounding
        if isinstance(b, bool) and "b" not in kinds:  # PyTorch subtracts no booleans, not even numbers
            raise NeedsTorch(f"the number {b} beside {a.dtype}")
        return _apply(function, kinds, rest[-1], a, b, result=result)

    other = "number" if name.endswith("Scalar_out") else "Tensor"
    alpha = ", number alpha" if name.startswith(("add.", "sub.")) else ""
    define(name, f"Tensor self, {other} other{alpha}")(combine)


for _name, (_function, _kinds) in _UNARY.items():
    _define_unary(_name, _function, _kinds)
for _name, _function in _TESTS.items():
    _define_unary(_name, _function, _ANY, DType.BOOL)
for _names, (_function, _kinds) in _BINARY.items():
    for _name in _names.split():
        _define_binary(_name, _function, _kinds)
for _names, _function in _COMPARISONS.items():
    for _name in _names.split():
        _define_binary(_name, _function, _ANY, DType.BOOL)


# Choices by a mask --------------------------------------------------------------------------------


@define("where.self_out", "Tensor condition, Tensor self, Tensor other")
def _where(condition: HostTensor, a: HostTensor, b: HostTensor, out: Output) -> HostArray:
    if condition.dtype is not DType.BOOL or not a.dtype is b.dtype is out.dtype:
        raise NeedsTorch(f"a choice between {a.dtype} and {b.dtype} by {condition.dtype}")
    _check_broadcast(condition.array, a.array, b.array)
    return np.where(condition.array, a.array, b.array)


@define("masked_fill.Scalar_out", "Tensor self, Tensor mask, number value")
def _masked_fill(a: HostTensor, mask: HostTensor, value: float, out: Output) -> HostArray:
    if mask.dtype is not DType.BOOL or a.dtype is not out.dtype:
        raise NeedsTorch(f"a mask of {mask.dtype} over {a.dtype}")
    element = number_as(value, a.dtype)
    _check_broadcast(a.array, mask.array)
    return np.where(mask.array, element, a.array)


# Tensors filled with a number ---------------------------------------------------------------------


@define("full.out", "List[int] size, number fill_value")
def _full(size: Shape, value: float, out: Output) -> HostArray:
    if any(length < 0 for length in size):
        raise HostError(f"a size below 0 in {list(size)}")
    return np.full(size, number_as(value, out.dtype), out.dtype.numpy)


@define("full_like.out", "Tensor self, number fill_value, Optional[MemoryFormat] memory_format")
def _full_like(a: HostTensor, value: float, _: object, out: Output) -> HostArray:
    return _full(a.array.shape, value, out)


@define("zeros.out", "List[int] size")
def _zeros(size: Shape, out: Output) -> HostArray:
    return _full(size, False, out)


@define("ones.out", "List[int] size")
def _ones(size: Shape, out: Output) -> HostArray:
    return _full(size, True, out)
