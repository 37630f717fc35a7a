"""Operators outside the delegates: the few that ExecuTorch itself defines, and ATen through PyTorch."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.runtime.host_operator import Arguments, HostOperator, Parameter, Run
from pteron.runtime.host_values import HostTensor, Unset
from pteron.runtime.tensors import bf16_bits, numbers


def find_operator(name: str) -> HostOperator | None:
    """The operator of a name such as "aten::add.out", or None where nothing here provides it."""
    if name in _NATIVE:
        return _NATIVE[name]
    if not has_torch():
        return None
    from pteron.runtime.host_torch import find_torch_operator

    return find_torch_operator(name)


def has_torch() -> bool:
    """Whether PyTorch is there to run ATen operators."""
    return importlib.util.find_spec("torch") is not None


def _native(run: Run, names: str, out: str = "out") -> HostOperator:
    """An operator with these parameters, of which it writes `out`."""
    return HostOperator(run, tuple(Parameter(n, "any", n == out, n != out) for n in names.split()))


def _scalar(compute: Callable[..., Any], names: str) -> HostOperator:
    """An operator whose result, a Python number, comes after its inputs."""
    count = len(names.split())

    def run(arguments: Arguments) -> Mapping[int, object]:
        try:
            return {count: compute(*arguments[:count])}
        except ArithmeticError as error:
            raise HostError(str(error)) from None

    return _native(run, f"{names} out")


def _array(value: object) -> np.ndarray[Any, Any]:
    if not isinstance(value, HostTensor):
        raise TypeError(f"expected a tensor, found {type(value).__name__}")
    return value.array


def _view(arguments: Arguments) -> Mapping[int, object]:
    """The same memory in another shape."""
    source, size, _ = arguments[:3]
    return {2: HostTensor(_array(source).reshape(tuple(size)), source.dtype)}


def _copy_index(arguments: Arguments) -> Mapping[int, object]:
    """Write one step's result into its row; rows are appended as a loop goes on."""
    target, source, index = arguments[:3]
    row = _array(source)[None]
    if isinstance(target, Unset) or index == 0:
        return {0: HostTensor(row.copy(), source.dtype)}
    return {0: HostTensor(np.concatenate([_array(target)[:index], row]), source.dtype)}


def _check_order(dim_order: Sequence[int] | None, rank: int) -> None:
    """Any order of dims in memory will do: arrays go by their logical shape, whatever their strides."""
    if dim_order is not None and sorted(dim_order) != list(range(rank)):
        raise HostError(f"dim order {list(dim_order)} is not an order of {rank} dims")


def _empty(arguments: Arguments) -> Mapping[int, object]:
    """Memory that something else will fill. It holds zeros, so that what is read too early does not vary."""
    size, dim_order, out = arguments[:3]
    _check_order(dim_order, len(size))
    return {2: HostTensor(np.zeros(tuple(size), out.dtype.numpy), out.dtype)}


def _convert(arguments: Arguments) -> Mapping[int, object]:
    """A copy in the output's element type."""
    source, _, dim_order, out = arguments[:4]
    _check_order(dim_order, _array(source).ndim)
    dtype: DType = out.dtype
    if dtype is source.dtype:
        return {3: HostTensor(_array(source).copy(), dtype)}
    values = numbers(_array(source), source.dtype)
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
    "ceil": lambda a: -(-a // 1),
    "round": round,
    "trunc": int,
}
_CONVERT = _native(_convert, "self non_blocking dim_order out")
_NATIVE: dict[str, HostOperator] = {
    **{
        f"executorch_prim::{name}.{overload}": _scalar(compute, names)
        for family, names in ((_BINARY, "a b"), (_UNARY, "a"))
        for name, compute in family.items()
        for overload in ("Scalar", "int")
    },
    "executorch_prim::et_view.default": _native(_view, "self size out"),
    "executorch_prim::et_copy_index.tensor": _native(_copy_index, "copy_to copy_from index", "copy_to"),
    "aten::sym_size.int": _scalar(lambda tensor, dim: int(_array(tensor).shape[dim]), "self dim"),
    "aten::sym_numel": _scalar(lambda tensor: int(_array(tensor).size), "self"),
    "aten::_local_scalar_dense": _scalar(lambda tensor: _array(tensor).item(), "self"),
    "dim_order_ops::_empty_dim_order.out": _native(_empty, "size dim_order out"),
    "dim_order_ops::_to_dim_order_copy.out": _CONVERT,
    "dim_order_ops::_clone_dim_order.out": _CONVERT,
}
