"""Operators of each element by itself, and tensors full of one number, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.graph import Shape
from pteron.ops.operand import HostArray
from pteron.runtime.host_numpy import Result, define
from pteron.runtime.host_promotion import Beyond, NumpyType, in_type, number_as, result_type
from pteron.runtime.host_values import HostTensor, Unset

Operand = HostTensor | float
Out = HostTensor | Unset
_BOOL, _SINGLE = np.dtype(np.bool_), np.dtype(np.float32)
_F32_WHOLE_MAX = 1 << 24  # whole numbers up to it are exact in f32


def _each(
    out: Out, written: NumpyType, kind: NumpyType, function: Callable[..., Any], *operands: Operand
) -> Result:
    """A function of elements that are brought to one type and one shape."""
    if out.dtype.numpy != written or out.dtype is DType.BF16:
        raise Beyond(f"a result of {written} written to {out.dtype}")
    typed = [operand if isinstance(operand, HostTensor) else in_type(operand, kind) for operand in operands]
    try:
        shape = np.broadcast_shapes(*(_shape(operand) for operand in operands))
    except ValueError:
        shapes = ", ".join(str(list(_shape(operand))) for operand in operands)
        raise HostError(f"shapes {shapes} cannot be brought to one") from None

    def make() -> HostArray:
        arrays = [in_type(each, kind) if isinstance(each, HostTensor) else each for each in typed]
        return np.asarray(function(*arrays), written)

    return Result(shape, make)


def _shape(operand: Operand) -> Shape:
    return operand.array.shape if isinstance(operand, HostTensor) else ()


# Arithmetic -------------------------------------------------------------------------------------


def _check_alpha(alpha: float) -> None:
    """PyTorch multiplies and adds in one rounding."""
    if alpha != 1:
        raise Beyond(f"alpha {alpha}")


@define("add.out", "Tensor self, Tensor other, number alpha")
@define("add.Scalar_out", "Tensor self, number other, number alpha")
def _add(a: HostTensor, b: Operand, alpha: float, out: Out) -> Result:
    kind = result_type(a, b)
    _check_alpha(alpha)
    return _each(out, kind, kind, np.add, a, b)


@define("sub.out", "Tensor self, Tensor other, number alpha")
@define("sub.Scalar_out", "Tensor self, number other, number alpha")
def _sub(a: Operand, b: Operand, alpha: float, out: Out) -> Result:
    kind = result_type(a, b)
    _check_alpha(alpha)
    if any((x.dtype is DType.BOOL) if isinstance(x, HostTensor) else isinstance(x, bool) for x in (a, b)):
        raise HostError("booleans cannot be subtracted")
    return _each(out, kind, kind, np.subtract, a, b)


@define("rsub.Scalar_out", "Tensor self, number other, number alpha")
def _rsub(a: Operand, b: Operand, alpha: float, out: Out) -> Result:
    return _sub(b, a, alpha, out)


@define("mul.out", "Tensor self, Tensor other")
@define("mul.Scalar_out", "Tensor self, number other")
def _mul(a: HostTensor, b: Operand, out: Out) -> Result:
    kind = result_type(a, b)
    return _each(out, kind, kind, np.multiply, a, b)


@define("div.out", "Tensor self, Tensor other")
@define("div.Scalar_out", "Tensor self, number other")
def _div(a: HostTensor, b: Operand, out: Out) -> Result:
    kind = result_type(a, b)
    kind = kind if kind.kind == "f" else _SINGLE
    return _each(out, kind, kind, np.divide, a, b)


@define("maximum.out", "Tensor self, Tensor other")
def _maximum(a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    return _each(out, kind, kind, np.maximum, a, b)


@define("minimum.out", "Tensor self, Tensor other")
def _minimum(a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    return _each(out, kind, kind, np.minimum, a, b)


@define("clamp.out", "Tensor self, Optional[number] min, Optional[number] max")
def _clamp(a: HostTensor, low: float | None, high: float | None, out: Out) -> Result:
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds or any(bound != bound or isinstance(bound, bool) for bound in bounds):
        raise Beyond("bounds that are not numbers")
    kind = result_type(a, *bounds)
    least, most = (None if bound is None else in_type(bound, kind) for bound in (low, high))

    def clamped(array: HostArray) -> HostArray:
        raised = array if least is None else np.maximum(array, least)
        return raised.copy() if most is None else np.minimum(raised, most)

    if kind == _BOOL:
        raise Beyond("booleans between bounds")
    return _each(out, kind, kind, clamped, a)


# Comparisons and logic --------------------------------------------------------------------------


def _define_comparison(name: str, function: Callable[..., Any]) -> None:
    @define(f"{name}.Tensor_out", "Tensor self, Tensor other")
    @define(f"{name}.Scalar_out", "Tensor self, number other")
    def compare(a: HostTensor, b: Operand, out: Out) -> Result:
        return _each(out, _BOOL, result_type(a, b), function, a, b)


def _define_logic(name: str, function: Callable[..., Any]) -> None:
    @define(f"logical_{name}.out", "Tensor self, Tensor other")
    def combine(a: HostTensor, b: HostTensor, out: Out) -> Result:
        return _each(out, _BOOL, result_type(a, b), function, a, b)


def _define_bits(name: str, function: Callable[..., Any]) -> None:
    @define(f"bitwise_{name}.Tensor_out", "Tensor self, Tensor other")
    @define(f"bitwise_{name}.Scalar_out", "Tensor self, number other")
    def combine(a: HostTensor, b: Operand, out: Out) -> Result:
        kind = result_type(a, b)
        if kind.kind == "f":
            raise HostError("floats have no bits to combine")
        return _each(out, kind, kind, function, a, b)


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
    return _each(out, _BOOL, result_type(a), np.logical_not, a)


@define("bitwise_not.out", "Tensor self")
def _bitwise_not(a: HostTensor, out: Out) -> Result:
    kind = result_type(a)
    if kind.kind == "f":
        raise HostError("floats have no bits to turn")
    return _each(out, kind, kind, np.invert, a)


@define("isnan.out", "Tensor self")
def _isnan(a: HostTensor, out: Out) -> Result:
    return _each(out, _BOOL, result_type(a), lambda array: array != array, a)


@define("isinf.out", "Tensor self")
def _isinf(a: HostTensor, out: Out) -> Result:
    return _each(out, _BOOL, result_type(a), lambda array: abs(array) == np.inf, a)


# Of one tensor ----------------------------------------------------------------------------------


def _define_unary(name: str, function: Callable[..., Any], kinds: str) -> None:
    """A function that keeps the type, for some kinds of it."""

    @define(f"{name}.out", "Tensor self")
    def apply(a: HostTensor, out: Out) -> Result:
        kind = result_type(a)
        if kind.kind not in kinds:
            raise Beyond(f"{name} of {a.dtype}")
        return _each(out, kind, kind, function, a)


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


# A choice of two --------------------------------------------------------------------------------


@define("where.self_out", "Tensor condition, Tensor self, Tensor other")
def _where(condition: HostTensor, a: HostTensor, b: HostTensor, out: Out) -> Result:
    kind = result_type(a, b)
    if condition.dtype is not DType.BOOL:
        raise Beyond(f"a condition of {condition.dtype}")
    shape = _each(out, kind, kind, np.add, condition, a, b).shape

    def make() -> HostArray:
        return np.where(condition.array, in_type(a, kind), in_type(b, kind))

    return Result(shape, make)


@define("masked_fill.Scalar_out", "Tensor self, Tensor mask, number value")
def _masked_fill(a: HostTensor, mask: HostTensor, value: float, out: Out) -> Result:
    if mask.dtype is not DType.BOOL:
        raise HostError(f"a mask of {mask.dtype}")
    element = number_as(value, a.dtype)
    shape = _each(out, a.dtype.numpy, a.dtype.numpy, np.add, a, mask).shape
    return Result(shape, lambda: np.where(mask.array, element, a.array))


# Of numbers alone -------------------------------------------------------------------------------


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
        raise Beyond("numbers that are not whole")
    if most > (_F32_WHOLE_MAX if out.dtype.is_float else np.iinfo(cast(Any, out.dtype.numpy)).max):
        raise Beyond(f"numbers up to {most} in {out.dtype}")
    if step == 0 or (end - start) / step < 0:
        raise HostError(f"no steps of {step} lead from {start} to {end}")
    count = ceil((end - start) / step)
    return Result((count,), lambda: np.arange(start, end, step).astype(out.dtype.numpy))
