"""Operators that move elements, of any type, and reductions that do not depend on the order of sums: by
NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.graph import Shape
from pteron.host.numpy_operators import NeedsTorch, Output, define, shared_type
from pteron.host.operator import require
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray


def _copy_of(view: HostArray, source: HostTensor, out: Output) -> HostArray:
    if out.dtype is not source.dtype:
        raise NeedsTorch(f"{source.dtype} written to {out.dtype}")
    return view.copy()


def _axes(dims: Shape, rank: int) -> tuple[int, ...]:
    """Dims as non-negative numbers. A tensor of rank 0 is treated as one of rank 1, as in PyTorch."""
    for dim in dims:
        require(-max(1, rank) <= dim < max(1, rank), f"a tensor of {rank} dims has no dim {dim}")
    axes = tuple(dim % max(1, rank) for dim in dims)
    require(len(set(axes)) == len(axes), f"a dim twice in {list(dims)}")
    return axes


def view_shape(array: HostArray, size: Shape) -> Shape:
    """The shape of a view of an array. One size may be -1: it is computed from the others."""
    known = prod(length for length in size if length != -1)
    is_open = size.count(-1) == 1 and known > 0 and array.size % known == 0
    fits = all(length >= -1 for length in size) and (is_open or (-1 not in size and known == array.size))
    require(fits, f"{array.size} elements cannot be {list(size)}")
    return tuple(array.size // known if length == -1 else length for length in size)


@define("view_copy.out", "Tensor self, List[int] size")
def _view(a: HostTensor, size: Shape, out: Output) -> HostArray:
    shape = view_shape(a.array, size)
    if out.dtype is not a.dtype:
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    return np.array(a.array.reshape(shape), order="C")


@define("permute_copy.out", "Tensor self, List[int] dims")
def _permute(a: HostTensor, dims: Shape, out: Output) -> HostArray:
    require(len(dims) == a.array.ndim, f"{list(dims)} is no order of {a.array.ndim} dims")
    return _copy_of(a.array.transpose(_axes(dims, a.array.ndim)), a, out)


@define("expand_copy.out", "Tensor self, List[int] size, bool implicit")
def _expand(a: HostTensor, size: Shape, _: bool, out: Output) -> HostArray:
    own = (1,) * (len(size) - a.array.ndim) + a.array.shape
    added = len(size) - a.array.ndim
    fits = len(own) == len(size) and all(
        length in (-1, current)
        if place >= added and current != 1
        else length >= (-1 if place >= added else 0)
        for place, (current, length) in enumerate(zip(own, size, strict=False))
    )
    require(fits, f"a tensor {list(a.array.shape)} cannot be {list(size)}")
    shape = tuple(current if length == -1 else length for current, length in zip(own, size, strict=True))
    return _copy_of(np.broadcast_to(a.array, shape), a, out)


@define("repeat.out", "Tensor self, List[int] repeats")
def _repeat(a: HostTensor, repeats: Shape, out: Output) -> HostArray:
    own = (1,) * (len(repeats) - a.array.ndim) + a.array.shape
    fits = len(own) == len(repeats) and all(times >= 0 for times in repeats)
    require(fits, f"a tensor {list(a.array.shape)} cannot be repeated {list(repeats)} times")
    if out.dtype is not a.dtype:
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    return np.tile(a.array, repeats)


@define("unsqueeze_copy.out", "Tensor self, int dim")
def _unsqueeze(a: HostTensor, dim: int, out: Output) -> HostArray:
    return _copy_of(np.expand_dims(a.array, _axes((dim,), a.array.ndim + 1)), a, out)


@define("squeeze_copy.dims_out", "Tensor self, List[int] dim")
def _squeeze(a: HostTensor, dims: Shape, out: Output) -> HostArray:
    axes = _axes(dims, a.array.ndim) if a.array.ndim else ()
    return _copy_of(a.array.squeeze(tuple(axis for axis in axes if a.array.shape[axis] == 1)), a, out)


@define("select_copy.int_out", "Tensor self, int dim, int index")
def _select(a: HostTensor, dim: int, index: int, out: Output) -> HostArray:
    require(a.array.ndim, "a tensor without dims has nothing to select")
    (axis,) = _axes((dim,), a.array.ndim)
    size = a.array.shape[axis]
    require(-size <= index < size, f"index {index} of a dim of {size}")
    return _copy_of(a.array[(slice(None),) * axis + (index, ...)], a, out)


@define("flip.out", "Tensor self, List[int] dims")
def _flip(a: HostTensor, dims: Shape, out: Output) -> HostArray:
    axes = _axes(dims, a.array.ndim) if a.array.ndim else ()
    return _copy_of(np.flip(a.array, axes), a, out)


# Reductions ---------------------------------------------------------------------------------------


def _reduce(
    function: Callable[..., Any], a: HostTensor, dims: Shape | None, keep: bool, out: Output, dtype: DType
) -> HostArray:
    """Reduce some dims by a function; without `dims`, all of them."""
    if shared_type(a) and out.dtype is not dtype:
        raise NeedsTorch(f"{dtype} written to {out.dtype}")
    rank = a.array.ndim
    axes = _axes(dims or (), rank)
    array = a.array if rank else a.array.reshape(1)  # a tensor without dims has a dim 0 nevertheless
    reduced = np.asarray(function(array, axis=axes or tuple(range(array.ndim)), keepdims=bool(keep)))
    return reduced if rank else reduced.reshape(())


def _require_elements(a: HostTensor, dims: Shape | None) -> None:
    sizes = [a.array.shape[axis] for axis in _axes(dims or (), a.array.ndim)] if a.array.ndim else [1]
    require(all(sizes if dims else a.array.shape), f"no elements along dims {list(dims or ())}")


def _define_test(name: str, function: Callable[..., Any]) -> None:
    """Define `any` or `all`: whether any element, or every element, is not zero."""

    @define(f"{name}.dims_out", "Tensor self, Optional[List[int]] dim, bool keepdim")
    def over_dims(a: HostTensor, dims: Shape | None, keep: bool, out: Output) -> HostArray:
        if a.dtype is DType.U8 or dims == ():
            raise NeedsTorch(f"{name} of {a.dtype} over {dims}")
        return _reduce(function, a, dims, keep, out, DType.BOOL)

    define(f"{name}.out", "Tensor self, int dim, bool keepdim")(
        lambda a, dim, keep, out: over_dims(a, (dim,), keep, out)
    )
    define(f"{name}.all_out", "Tensor self")(lambda a, out: over_dims(a, None, False, out))


def _define_extreme(name: str, function: Callable[..., Any], find_place: Callable[..., Any]) -> None:
    @define(f"a{name}.out", "Tensor self, List[int] dim, bool keepdim")
    def extreme(a: HostTensor, dims: Shape, keep: bool, out: Output) -> HostArray:
        _require_elements(a, dims)
        return _reduce(function, a, dims, keep, out, a.dtype)

    @define(f"arg{name}.out", "Tensor self, Optional[int] dim, bool keepdim")
    def place(a: HostTensor, dim: int | None, keep: bool, out: Output) -> HostArray:
        """The index of the first extreme element. NaN counts as more extreme than every number."""
        if a.dtype is DType.BOOL or (dim is None and keep):
            raise NeedsTorch(f"arg{name} of {a.dtype}")

        def found(array: HostArray, axis: tuple[int, ...], keepdims: bool) -> Any:
            return find_place(array) if dim is None else find_place(array, axis[0], keepdims=keepdims)

        dims = None if dim is None else (dim,)
        _require_elements(a, dims)
        return _reduce(found, a, dims, keep, out, DType.I64)


_define_test("any", np.any)
_define_test("all", np.all)
_define_extreme("max", np.max, np.argmax)
_define_extreme("min", np.min, np.argmin)


@define("sum.IntList_out", "Tensor self, Optional[List[int]] dim, bool keepdim, Optional[ScalarType] dtype")
def _sum(a: HostTensor, dims: Shape | None, keep: bool, dtype: int | None, out: Output) -> HostArray:
    """The sum of integers. They wrap, so the order of additions does not matter."""
    if a.dtype.is_float or dtype is not None:
        raise NeedsTorch(f"a sum of {a.dtype}")
    return _reduce(
        lambda array, **along: np.sum(array, dtype=np.int64, **along), a, dims, keep, out, DType.I64
    )


@define("cumsum.out", "Tensor self, int dim, Optional[ScalarType] dtype")
def _cumsum(a: HostTensor, dim: int, dtype: int | None, out: Output) -> HostArray:
    """Cumulative sums, added one after the other, floats in f64: the same order and type as PyTorch."""
    is_float = shared_type(a).is_float
    if dtype is not None or out.dtype is not (a.dtype if is_float else DType.I64):
        raise NeedsTorch(f"a running sum of {a.dtype} written to {out.dtype}")
    (axis,), shape = _axes((dim,), a.array.ndim), a.array.shape
    summed = np.cumsum(a.array, axis, np.float64 if is_float else np.int64).reshape(shape)
    from_zero = summed + 0 if shape else summed  # along a dim PyTorch begins at +0: no sum is -0
    return np.asarray(from_zero, out.dtype.numpy)
