"""Operators along dims and by index, by NumPy: those whose result does not hang on the order of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.graph import Shape
from pteron.host.numpy_operators import Result, define
from pteron.host.rules import require
from pteron.host.type_promotion import NeedsTorch, result_type
from pteron.host.values import HostTensor, UnsetTensor
from pteron.ops.operand import HostArray

Out = HostTensor | UnsetTensor
_EVERY = slice(None)


def _reduced(
    a: HostTensor,
    dims: Shape | None,
    keep: bool,
    out: Out,
    dtype: DType,
    function: Callable[..., Any],
    *,
    needs_elements: bool = False,
) -> Result:
    """A function over some dims; without any, over all of them."""
    if out.dtype is not dtype:
        raise NeedsTorch(f"{dtype} written to {out.dtype}")
    rank = a.array.ndim
    places = [_dim(dim, rank) for dim in dims or ()]
    require(len(set(places)) == len(places), f"a dim stands twice in {list(dims or ())}")
    array = a.array if rank else a.array.reshape(1)  # a tensor without dims has dim 0 all the same
    along = tuple(places) if places else tuple(range(array.ndim))
    if needs_elements:
        require(all(array.shape[dim] for dim in along), f"nothing along dims {list(along)}")
    shape = tuple(
        1 if dim in along else size for dim, size in enumerate(array.shape) if keep or dim not in along
    )
    shape = shape if rank else ()
    return Result(shape, lambda: np.asarray(function(array, axis=along, keepdims=bool(keep))).reshape(shape))


def _dim(dim: int, rank: int) -> int:
    require(-max(1, rank) <= dim < max(1, rank), f"a tensor of {rank} dims has no dim {dim}")
    return dim % max(1, rank)


def _define_test(name: str, function: Callable[..., Any]) -> None:
    """Whether any element, or all, are not zero."""

    @define(f"{name}.dims_out", "Tensor self, Optional[List[int]] dim, bool keepdim")
    def over_dims(a: HostTensor, dims: Shape | None, keep: bool, out: Out) -> Result:
        result_type(a)
        if a.dtype is DType.U8:
            raise NeedsTorch("elements of u8")
        if dims == ():
            raise NeedsTorch("a list of no dims")
        return _reduced(a, dims, keep, out, DType.BOOL, function)

    @define(f"{name}.out", "Tensor self, int dim, bool keepdim")
    def over_one(a: HostTensor, dim: int, keep: bool, out: Out) -> Result:
        return over_dims(a, (dim,), keep, out)

    @define(f"{name}.all_out", "Tensor self")
    def over_all(a: HostTensor, out: Out) -> Result:
        return over_dims(a, None, False, out)


_define_test("any", np.any)
_define_test("all", np.all)


def _define_extreme(name: str, function: Callable[..., Any]) -> None:
    @define(f"a{name}.out", "Tensor self, List[int] dim, bool keepdim")
    def extreme(a: HostTensor, dims: Shape, keep: bool, out: Out) -> Result:
        result_type(a)
        return _reduced(a, dims, keep, out, a.dtype, function, needs_elements=True)

    place = {"max": np.argmax, "min": np.argmin}[name]

    @define(f"arg{name}.out", "Tensor self, Optional[int] dim, bool keepdim")
    def place_of(a: HostTensor, dim: int | None, keep: bool, out: Out) -> Result:
        """The first place of it; NaN is beyond every number."""
        if result_type(a).kind == "b" or (dim is None and keep):
            raise NeedsTorch(f"places in {a.dtype}")

        def found(array: HostArray, axis: tuple[int, ...], keepdims: bool) -> Any:
            return place(array) if dim is None else place(array, axis[0], keepdims=keepdims)

        dims = None if dim is None else (dim,)
        return _reduced(a, dims, keep, out, DType.I64, found, needs_elements=True)


_define_extreme("max", np.max)
_define_extreme("min", np.min)


@define("sum.IntList_out", "Tensor self, Optional[List[int]] dim, bool keepdim, Optional[ScalarType] dtype")
def _sum(a: HostTensor, dims: Shape | None, keep: bool, dtype: int | None, out: Out) -> Result:
    """Of integers, which wrap in whatever order they are added."""
    if result_type(a).kind == "f" or dtype is not None:
        raise NeedsTorch("sums of floats")

    def added(array: HostArray, **along: Any) -> Any:
        return np.sum(array, dtype=np.int64, **along)

    return _reduced(a, dims, keep, out, DType.I64, added)


@define("cumsum.out", "Tensor self, int dim, Optional[ScalarType] dtype")
def _cumsum(a: HostTensor, dim: int, dtype: int | None, out: Out) -> Result:
    """One after the other, floats in f64: the order and the type that PyTorch has."""
    is_float = result_type(a).kind == "f"
    if dtype is not None or out.dtype is not (a.dtype if is_float else DType.I64):
        raise NeedsTorch(f"sums of {a.dtype} written to {out.dtype}")
    place, shape = _dim(dim, a.array.ndim), a.array.shape
    kind = np.float64 if is_float else np.int64

    def make() -> HostArray:
        summed = np.cumsum(a.array, place, kind).reshape(shape)
        begun = summed + 0 if shape else summed  # along a dim, PyTorch begins at +0, and so ends there
        return np.asarray(begun, out.dtype.numpy)

    return Result(shape, make)


# By index ---------------------------------------------------------------------------------------


@define(
    "embedding.out",
    "Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq, bool sparse",
)
def _embedding(weight: HostTensor, indices: HostTensor, _: int, __: bool, ___: bool, out: Out) -> Result:
    _check_indices(weight, indices, out)
    require(weight.array.ndim == 2, f"weight is {list(weight.array.shape)}, not rows")
    shape = (*indices.array.shape, weight.array.shape[1])
    return Result(shape, lambda: np.take(weight.array, cast(Any, indices.array), 0))


@define("index_select.out", "Tensor self, int dim, Tensor index")
def _index_select(a: HostTensor, dim: int, index: HostTensor, out: Out) -> Result:
    _check_indices(a, index, out)
    require(index.array.ndim <= 1, f"an index {list(index.array.shape)}, not of one dim")
    if a.array.ndim == 0:
        raise NeedsTorch("a tensor without dims")
    place, rows = _dim(dim, a.array.ndim), index.array.reshape(-1)
    shape = (*a.array.shape[:place], rows.size, *a.array.shape[place + 1 :])
    return Result(shape, lambda: np.take(a.array, cast(Any, rows), place))


@define("gather.out", "Tensor self, int dim, Tensor index, bool sparse_grad")
def _gather(a: HostTensor, dim: int, index: HostTensor, _: bool, out: Out) -> Result:
    _check_indices(a, index, out)
    if a.array.ndim == 0 or index.dtype is not DType.I64:
        raise NeedsTorch("a tensor without dims")
    place, shape = _dim(dim, a.array.ndim), index.array.shape
    require(len(shape) == a.array.ndim, f"an index {list(shape)} of a tensor {list(a.array.shape)}")
    kept = tuple(
        _EVERY if each == place else slice(0, size) for each, size in enumerate(shape)
    )  # the index may be smaller along other dims
    pairs = enumerate(zip(shape, a.array.shape, strict=True))
    fits = all(of_index <= own for each, (of_index, own) in pairs if each != place)
    require(fits, f"an index {list(shape)} of a tensor {list(a.array.shape)}")
    return Result(shape, lambda: np.take_along_axis(a.array[kept], cast(Any, index.array), place))


@define("index.Tensor_out", "Tensor self, List[Optional[Tensor]] indices")
def _index(a: HostTensor, indices: tuple[HostTensor | None, ...], out: Out) -> Result:
    given = [index for index in indices if index is not None]
    if not given or any(index.dtype not in (DType.I32, DType.I64) for index in given):
        raise NeedsTorch("masks")
    if out.dtype is not a.dtype or a.array.ndim < len(indices):
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    key = tuple(_EVERY if index is None else index.array for index in indices)
    try:
        together = np.broadcast_shapes(*(index.array.shape for index in given))
    except ValueError:
        shapes = [list(index.array.shape) for index in given]
        require(False, f"indices {shapes} cannot be brought to one shape")
    places = [place for place, index in enumerate(indices) if index is not None]
    rest = [size for place, size in enumerate(a.array.shape) if place not in places]
    # Where indices stand side by side, what they pick stands in their place; else it comes first.
    is_one_run = places[-1] - places[0] == len(places) - 1
    at = places[0] if is_one_run else 0
    return Result((*rest[:at], *together, *rest[at:]), lambda: np.array(a.array[key], order="C"))


def _check_indices(source: HostTensor, index: HostTensor, out: Out) -> None:
    if out.dtype is not source.dtype or index.dtype not in (DType.I32, DType.I64):
        raise NeedsTorch(f"{source.dtype} at {index.dtype} written to {out.dtype}")
