"""Operators outside the delegates: the few that ExecuTorch itself defines, and ATen by NumPy or PyTorch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.extras import has_torch
from pteron.gpu.tensors import bf16_bits, numbers
from pteron.host import create, layout, logic, reductions  # noqa: F401  # they define operators
from pteron.host.limits import check_integer
from pteron.host.numpy_operators import find_numpy_operator
from pteron.host.operator import Arguments, Cost, EstimateCost, HostOperator, Parameter, Run
from pteron.host.values import GrowableRows, HostTensor, UnsetTensor
from pteron.ops.operand import HostArray


def find_operator(name: str) -> HostOperator | None:
    """The operator of a name such as "aten::add.out", or None where nothing here provides it."""
    return _NATIVE.get(name) or find_numpy_operator(name, _find_torch) or _find_torch(name)


def _find_torch(name: str) -> HostOperator | None:
    if not has_torch():
        return None
    from pteron.host.torch_operators import find_torch_operator

    return find_torch_operator(name)


def _native(
    run: Run, names: str, out: str = "out", estimate_cost: EstimateCost = lambda _: Cost()
) -> HostOperator:
    """An operator with these parameters, of which it writes `out`."""
    parameters = tuple(Parameter(n, "any", n == out, n != out) for n in names.split())
    return HostOperator(run, estimate_cost, parameters)


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

    return _native(run, f"{names} out")


def _of_numbers(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is given numbers alone: of texts and lists, `*` and `%` make any amount."""

    def checked(*values: object) -> Any:
        for value in values:
            if not isinstance(value, (int, float)):
                raise HostError(f"takes numbers, found {type(value).__name__}")
        return compute(*values)

    return checked


def _array(value: object) -> HostArray:
    if not isinstance(value, HostTensor):
        raise TypeError(f"expected a tensor, found {type(value).__name__}")
    return value.array


def _sizes(value: object) -> tuple[int, ...]:
    """A list of sizes."""
    if not isinstance(value, tuple) or not all(isinstance(size, int) and size >= 0 for size in value):
        raise HostError(f"sizes are whole numbers, found {value!r:.60}")
    return value


def _size(tensor: object, dim: object) -> int:
    shape = _array(tensor).shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise HostError(f"a tensor {list(shape)} has no dim {dim}")
    return int(shape[dim])


def _item(tensor: object) -> Any:
    array = _array(tensor)
    if array.size != 1:
        raise HostError(f"a number is read from one element, not from {list(array.shape)}")
    assert isinstance(tensor, HostTensor)
    return numbers(array, tensor.dtype).item()


def _cost_of_view(arguments: Arguments) -> Cost:
    """Nothing is copied where the elements lie in the order of their dims."""
    source, size = _array(arguments[0]), arguments[1]
    if source.flags.c_contiguous:
        return Cost(is_view=True)
    known = prod(length for length in size if length >= 0)
    shape = tuple(length if length >= 0 else source.size // max(1, known) for length in size)
    return Cost({2: shape}, source.size)


def _view(arguments: Arguments) -> Mapping[int, object]:
    """The same memory in another shape."""
    source, size, _ = arguments[:3]
    return {2: HostTensor(_array(source).reshape(tuple(size)), source.dtype)}


def _cost_of_rows(arguments: Arguments) -> Cost:
    """A row is copied, and those before it where they do not lie in memory that can take one more."""
    target, source, index = arguments[:3]
    row, start = _array(source), isinstance(target, UnsetTensor)
    if not isinstance(index, int) or not 0 <= index <= (0 if start else len(_array(target))):
        raise HostError(f"row {index} is written where {0 if start else len(_array(target))} are")
    if index > 0 and _array(target).shape[1:] != row.shape:
        raise HostError(f"a row {list(row.shape)} is written to rows {list(_array(target).shape[1:])}")
    copied = 0 if index == 0 or _has_room(target, index) else index
    return Cost({0: (index + 1, *row.shape)}, row.size * (copied + 1))


def _copy_index(arguments: Arguments) -> Mapping[int, object]:
    """Write one step's result into its row; rows are appended as a loop goes on."""
    target, source, index = arguments[:3]
    row = _array(source)
    if isinstance(target, UnsetTensor) or index == 0:
        rows = GrowableRows(row[None].copy())
    elif _has_room(target, index):
        rows = target.rows
    else:
        rows = GrowableRows(_array(target)[:index])
    return {0: HostTensor(rows.put(index, row), source.dtype, rows)}


def _has_room(target: HostTensor, index: int) -> bool:
    """Whether a row can be appended where the rows lie: nobody else has appended one there."""
    return target.rows is not None and target.rows.count == index == len(target.array)


def _check_order(dim_order: Sequence[int] | None, rank: int) -> None:
    """Any order of dims in memory will do: arrays go by their logical shape, whatever their strides."""
    if dim_order is not None and sorted(dim_order) != list(range(rank)):
        raise HostError(f"dim order {list(dim_order)} is not an order of {rank} dims")


def _cost_of_empty(arguments: Arguments) -> Cost:
    size, order = _sizes(arguments[0]), arguments[1]
    _check_order(order if isinstance(order, tuple) else None, len(size))  # else it is a memory format
    return Cost({2: size}, prod(size))


def _empty(arguments: Arguments) -> Mapping[int, object]:
    """Memory that something else will fill. It holds zeros, so that what is read too early does not vary."""
    size, _, out = arguments[:3]
    return {2: HostTensor(np.zeros(size, out.dtype.numpy), out.dtype)}


def _cost_of_conversion(arguments: Arguments) -> Cost:
    array = _array(arguments[0])
    _check_order(arguments[2], array.ndim)
    return Cost({3: array.shape}, array.size)


def _convert(arguments: Arguments) -> Mapping[int, object]:
    """A copy in the output's element type."""
    source, _, _, out = arguments[:4]
    dtype: DType = out.dtype
    if dtype is source.dtype:
        return {3: HostTensor(_array(source).copy(), dtype)}
    values = numbers(_array(source), source.dtype)
    with np.errstate(invalid="ignore"):  # what no integer stands for becomes any
        converted = bf16_bits(values) if dtype is DType.BF16 else values.astype(dtype.numpy)
    return {3: HostTensor(converted, dtype)}


_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "sym_max": max,
    "sym_min": min,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "sym_float": float,
    "ceil": math.ceil,  # an integer, as `round` and `trunc` give
    "round": round,
    "trunc": int,
}
_CONVERT = _native(_convert, "self non_blocking dim_order out", estimate_cost=_cost_of_conversion)
_NATIVE: dict[str, HostOperator] = {
    **{
        f"executorch_prim::{name}.{overload}": _scalar(_of_numbers(compute), names)
        for family, names in ((_BINARY, "a b"), (_UNARY, "a"))
        for name, compute in family.items()
        for overload in ("Scalar", "int")
    },
    "executorch_prim::et_view.default": _native(_view, "self size out", estimate_cost=_cost_of_view),
    "executorch_prim::et_copy_index.tensor": _native(
        _copy_index, "copy_to copy_from index", "copy_to", _cost_of_rows
    ),
    "aten::empty.out": _native(_empty, "size memory_format out", estimate_cost=_cost_of_empty),
    "aten::sym_size.int": _scalar(_size, "self dim"),
    "aten::sym_numel": _scalar(lambda tensor: int(_array(tensor).size), "self"),
    "aten::_local_scalar_dense": _scalar(_item, "self"),
    "dim_order_ops::_empty_dim_order.out": _native(
        _empty, "size dim_order out", estimate_cost=_cost_of_empty
    ),
    "dim_order_ops::_to_dim_order_copy.out": _CONVERT,
    "dim_order_ops::_clone_dim_order.out": _CONVERT,
}
