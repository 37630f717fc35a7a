"""Operators outside the delegates by name: ExecuTorch's own, defined here, and ATen by NumPy or PyTorch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.extras import has_torch
from pteron.host import numpy_elementwise  # noqa: F401  # defines operators
from pteron.host.numpy_layout import view_shape
from pteron.host.numpy_operators import find_numpy_operator
from pteron.host.operator import Arguments, HostOperator, Parameter, Run, check_integer, require
from pteron.host.tensors import bf16_bits, widen_bf16
from pteron.host.values import GrowableRows, HostTensor, UnsetTensor
from pteron.ops.operand import HostArray


def find_operator(name: str) -> HostOperator | None:
    """The operator with a name such as "aten::add.out", or None if it is not supported."""
    return _EXECUTORCH.get(name) or find_numpy_operator(name, _find_torch) or _find_torch(name)


def _find_torch(name: str) -> HostOperator | None:
    if not has_torch():
        return None
    from pteron.host.torch_operators import find_torch_operator

    return find_torch_operator(name)


def _define(run: Run, names: str, out: str = "out") -> HostOperator:
    return HostOperator(run, tuple(Parameter(n, "any", n == out, n != out) for n in names.split()))


# Scalars ------------------------------------------------------------------------------------------


def _scalar(compute: Callable[..., Any], names: str) -> HostOperator:
    """An operator whose result, a Python number, comes after its inputs."""
    count = len(names.split())

    def run(arguments: Arguments) -> Mapping[int, object]:
        try:
            result = compute(*arguments[:count])
        except (ArithmeticError, ValueError) as error:
            raise HostError(str(error)) from None
        check_integer(result)
        return {count: result}

    return _define(run, f"{names} out")


def _of_numbers(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it rejects strings and lists, which Python adds and multiplies too."""

    def checked(*values: object) -> Any:
        for value in values:
            require(isinstance(value, (int, float)), f"takes numbers, found {type(value).__name__}")
        return compute(*values)

    return checked


def _size(tensor: object, dim: object) -> int:
    shape = _array(tensor).shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise HostError(f"a tensor {list(shape)} has no dim {dim}")
    return int(shape[dim])


def _item(tensor: Any) -> Any:
    array = _array(tensor)
    require(array.size == 1, f"a number is read from one element, not from {list(array.shape)}")
    return widen_bf16(array, tensor.dtype).item()


def _array(value: object) -> HostArray:
    if not isinstance(value, HostTensor):
        raise TypeError(f"expected a tensor, found {type(value).__name__}")
    return value.array


_BINARY: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "eq", "ne", "lt", "le", "gt", "ge")
    },
    "sym_max": max,
    "sym_min": min,
}
# Of a float, `ceil`, `round` and `trunc` give an integer.
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "sym_float": float,
    "ceil": math.ceil,
    "round": round,
    "trunc": int,
}


# Tensors ------------------------------------------------------------------------------------------


def _view(arguments: Arguments) -> Mapping[int, object]:
    """A view: nothing is copied if the elements are in the order of their dims."""
    source = _array(arguments[0])
    return {2: HostTensor(source.reshape(view_shape(source, arguments[1])), arguments[0].dtype)}


def _copy_row(arguments: Arguments) -> Mapping[int, object]:
    """Write one step's result into its row; a loop appends rows one by one. The earlier rows are copied only
    if their memory is full, or if another tensor has appended a row to it."""
    target, source, index = arguments[:3]
    row, count = _array(source), 0 if isinstance(target, UnsetTensor) else len(_array(target))
    if not isinstance(index, int) or not 0 <= index <= count:
        raise HostError(f"row {index} is written to a tensor of {count} rows")
    if index > 0 and target.array.shape[1:] != row.shape:
        raise HostError(f"a row {list(row.shape)} is written to rows {list(target.array.shape[1:])}")
    if index == 0:
        rows = GrowableRows(row[None].copy())
    elif target.rows is not None and target.rows.count == index == count:
        rows = target.rows
    else:
        rows = GrowableRows(target.array[:index])
    return {0: HostTensor(rows.put(index, row), source.dtype, rows)}


def _check_order(dim_order: object, rank: int) -> None:
    """Accept any order of dims in memory: arrays have their logical shape, whatever their strides."""
    if isinstance(dim_order, tuple):
        require(sorted(dim_order) == list(range(rank)), f"{dim_order} is not an order of {rank} dims")


def _empty(arguments: Arguments) -> Mapping[int, object]:
    """An "empty" tensor of zeros: a program that reads it before writing gets the same result every time."""
    size, dim_order, out = arguments[:3]
    is_shape = isinstance(size, tuple) and all(isinstance(length, int) and length >= 0 for length in size)
    require(is_shape, f"sizes are integers of at least 0, found {size!r:.60}")
    _check_order(dim_order, len(size))  # a tuple, or a memory format
    return {2: HostTensor(np.zeros(size, out.dtype.numpy), out.dtype)}


def _convert(arguments: Arguments) -> Mapping[int, object]:
    """A copy in the output's element type."""
    source, _, dim_order, out = arguments[:4]
    array, dtype = _array(source), out.dtype
    _check_order(dim_order, array.ndim)
    if dtype is source.dtype:
        return {3: HostTensor(array.copy(), dtype)}
    values = widen_bf16(array, source.dtype)
    with np.errstate(invalid="ignore"):  # a number that no integer can hold becomes any integer
        converted = bf16_bits(values) if dtype is DType.BF16 else values.astype(dtype.numpy)
    return {3: HostTensor(converted, dtype)}


_CONVERT = _define(_convert, "self non_blocking dim_order out")
_EXECUTORCH: dict[str, HostOperator] = {
    **{
        f"executorch_prim::{name}.{overload}": _scalar(_of_numbers(compute), names)
        for functions, names in ((_BINARY, "a b"), (_UNARY, "a"))
        for name, compute in functions.items()
        for overload in ("Scalar", "int")
    },
    "executorch_prim::et_view.default": _define(_view, "self size out"),
    "executorch_prim::et_copy_index.tensor": _define(_copy_row, "copy_to copy_from index", "copy_to"),
    "aten::empty.out": _define(_empty, "size memory_format out"),
    "aten::sym_size.int": _scalar(_size, "self dim"),
    "aten::sym_numel": _scalar(lambda tensor: int(_array(tensor).size), "self"),
    "aten::_local_scalar_dense": _scalar(_item, "self"),
    "dim_order_ops::_empty_dim_order.out": _define(_empty, "size dim_order out"),
    "dim_order_ops::_to_dim_order_copy.out": _CONVERT,
    "dim_order_ops::_clone_dim_order.out": _CONVERT,
}
