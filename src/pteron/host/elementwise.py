"""Arithmetic of each element by itself, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.numpy_operators import Result, define
from pteron.host.type_promotion import NeedsTorch, NumpyType, in_type, result_type
from pteron.host.values import HostTensor, UnsetTensor
from pteron.ops.operand import HostArray

Operand = HostTensor | float
Out = HostTensor | UnsetTensor
_BOOL, _SINGLE = np.dtype(np.bool_), np.dtype(np.float32)


def each(
    out: Out, written: NumpyType, kind: NumpyType, function: Callable[..., Any], *operands: Operand
) -> Result:
    """A function of elements that are brought to one type and one shape."""
    if out.dtype.numpy != written or out.dtype is DType.BF16:
        raise NeedsTorch(f"a result of {written} written to {out.dtype}")
    typed = [operand if isinstance(operand, HostTensor) else in_type(operand, kind) for operand in operands]
    try:
        shape = np.broadcast_shapes(*(_shape(operand) for operand in operands))
    except ValueError:
        shapes = ", ".join(str(list(_shape(operand))) for operand in operands)
        raise HostError(f"shapes {shapes} cannot be brought to one") from None

    def make() -> HostArray:
        arrays = [in_type(x, kind) if isinstance(x, HostTensor) else x for x in typed]
        return np.asarray(function(*arrays), written)

    return Result(shape, make)


def _shape(operand: Operand) -> Shape:
    return operand.array.shape if isinstance(operand, HostTensor) else ()


# Arithmetic -------------------------------------------------------------------------------------


def _check_alpha(alpha: float) -> None:
    """PyTorch multiplies and adds in one rounding."""
    if alpha != 1:
        raise NeedsTorch(f"alpha {alpha}")


@define("add.out", "Tensor self, Tensor other, number alpha")
@define("add.Scalar_out", "Tensor self, number other, number alpha")
def _add(a: HostTensor, b: Operand, alpha: float, out: Out) -> Result:
    kind = result_type(a, b)
    _check_alpha(alpha)
    return each(out, kind, kind, np.add, a, b)


@define("sub.out", "Tensor self, Tensor other, number alpha")
@define("sub.Scalar_out", "Tensor self, number other, number alpha")
def _sub(a: Operand, b: Operand, alpha: float, out: Out) -> Result:
    kind = result_type(a, b)
    _check_alpha(alpha)
    if any((x.dtype is DType.BOOL) if isinstance(x, HostTensor) else isinstance(x, bool) for x in (a, b)):
        raise HostError("booleans cannot be subtracted")
    return each(out, kind, kind, np.subtract, a, b)


@define("rsub.Scalar_out", "Tensor self, number other, number alpha")
def _rsub(a: Operand, b: Operand, alpha: float, out: Out) -> Result:
    return _sub(b, a, alpha, out)


@define("mul.out", "Tensor self, Tensor other")
@define("mul.Scalar_out", "Tensor self, number other")
def _mul(a: HostTensor, b: Operand, out: Out) -> Result:
    kind = result_type(a, b)
    return each(out, kind, kind, np.multiply, a, b)


@define("div.out", "Tensor self, Tensor other")
@define("div.Scalar_out", "Tensor self, number other")
def _div(a: HostTensor, b: Operand, out: Out) -> Result:
    kind = result_type(a, b)
    kind = kind if kind.kind == "f" else _SINGLE
    return each(out, kind, kind, np.divide, a, b)


@define("maximum.out", "Tensor self, Tensor other")
def _maximum(a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    return each(out, kind, kind, np.maximum, a, b)


@define("minimum.out", "Tensor self, Tensor other")
def _minimum(a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    return each(out, kind, kind, np.minimum, a, b)


@define("clamp.out", "Tensor self, Optional[number] min, Optional[number] max")
def _clamp(a: HostTensor, low: float | None, high: float | None, out: Out) -> Result:
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds or any(bound != bound or isinstance(bound, bool) for bound in bounds):
        raise NeedsTorch("bounds that are not numbers")
    kind = result_type(a, *bounds)
    least, most = (None if bound is None else in_type(bound, kind) for bound in (low, high))

    def clamped(array: HostArray) -> HostArray:
        raised = array if least is None else np.maximum(array, least)
        return raised.copy() if most is None else np.minimum(raised, most)

    if kind == _BOOL:
        raise NeedsTorch("booleans between bounds")
    return each(out, kind, kind, clamped, a)


@define("clamp.Tensor_out", "Tensor self, Optional[Tensor] min, Optional[Tensor] max")
def _clamp_to_tensors(a: HostTensor, low: HostTensor | None, high: HostTensor | None, out: Out) -> Result:
    bounds = [bound for bound in (low, high) if bound is not None]
    kind = result_type(a, *bounds)
    if not bounds or kind == _BOOL:
        raise NeedsTorch("booleans between bounds")

    def clamped(array: HostArray, *ends: HostArray) -> HostArray:
        raised = array if low is None else np.maximum(array, ends[0])
        return raised if high is None else np.minimum(raised, ends[-1])

    return each(out, kind, kind, clamped, a, *bounds)


# Quotients of integers --------------------------------------------------------------------------


def _quotient(a: HostTensor, b: Operand, out: Out, function: Callable[..., Any]) -> Result:
    """PyTorch refuses to divide by 0; the rules of the table, what processors cannot."""
    kind = result_type(a, b)
    if kind.kind not in "ui":
        raise NeedsTorch("quotients of floats")
    prepared = each(out, kind, kind, function, a, b)
    if not np.all(b.array if isinstance(b, HostTensor) else b) and 0 not in prepared.shape:
        raise HostError("an integer is divided by 0")
    return prepared


@define("floor_divide.out", "Tensor self, Tensor other")
def _floor_divide(a: HostTensor, b: HostTensor, out: Out) -> Result:
    return _quotient(a, b, out, np.floor_divide)


@define("remainder.Tensor_out", "Tensor self, Tensor other")
@define("remainder.Scalar_out", "Tensor self, number other")
def _remainder(a: HostTensor, b: Operand, out: Out) -> Result:
    return _quotient(a, b, out, np.remainder)


@define("fmod.Tensor_out", "Tensor self, Tensor other")
@define("fmod.Scalar_out", "Tensor self, number other")
def _fmod(a: HostTensor, b: Operand, out: Out) -> Result:
    return _quotient(a, b, out, np.fmod)


@define("div.out_mode", "Tensor self, Tensor other, Optional[str] rounding_mode")
@define("div.Scalar_mode_out", "Tensor self, number other, Optional[str] rounding_mode")
def _div_mode(a: HostTensor, b: Operand, mode: str | None, out: Out) -> Result:
    if mode == "floor":
        return _quotient(a, b, out, np.floor_divide)
    if mode == "trunc":  # towards zero: what fmod leaves over is a multiple too many
        return _quotient(a, b, out, lambda x, y: np.floor_divide(x - np.fmod(x, y), y))
    raise NeedsTorch(f"rounding_mode {mode}")


# Of one tensor ----------------------------------------------------------------------------------


def _define_unary(name: str, function: Callable[..., Any], kinds: str) -> None:
    """A function that keeps the type, for some kinds of it."""

    @define(f"{name}.out", "Tensor self")
    def apply(a: HostTensor, out: Out) -> Result:
        kind = result_type(a)
        if kind.kind not in kinds:
            raise NeedsTorch(f"{name} of {a.dtype}")
        return each(out, kind, kind, function, a)


_UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "abs": (np.abs, "uif"),
    "ceil": (np.ceil, "f"),
    "floor": (np.floor, "f"),
    "neg": (np.negative, "uif"),
    "reciprocal": (lambda array: array.dtype.type(1) / array, "f"),
    "relu": (lambda array: np.maximum(array, 0), "uif"),
    "round": (np.rint, "f"),
    "sqrt": (np.sqrt, "f"),
    "square": (lambda array: array * array, "uif"),
    "trunc": (np.trunc, "f"),
}
for _name, (_of_one, _kinds) in _UNARY.items():
    _define_unary(_name, _of_one, _kinds)
