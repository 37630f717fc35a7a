"""Operators that bring the same elements elsewhere, by NumPy: of any element type, bf16 as its bits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np

from pteron.dtypes import DType
from pteron.graph import Shape
from pteron.host.numpy_operators import Result, define
from pteron.host.rules import require
from pteron.host.type_promotion import NeedsTorch, number_as
from pteron.host.values import HostTensor, UnsetTensor
from pteron.ops.operand import HostArray

Out = HostTensor | UnsetTensor


def _moved(source: HostTensor, out: Out, view: Callable[[HostArray], HostArray]) -> Result:
    """A copy of a view, which costs nothing to make."""
    if out.dtype is not source.dtype:
        raise NeedsTorch(f"{source.dtype} written to {out.dtype}")
    seen = view(source.array)
    return Result(seen.shape, lambda: seen.copy())


def _dim(dim: int, rank: int) -> int:
    """A dim counted from the front; a tensor without dims counts as one of one."""
    require(-max(1, rank) <= dim < max(1, rank), f"a tensor of {rank} dims has no dim {dim}")
    return dim % max(1, rank)


def _dims(dims: Shape, rank: int) -> list[int]:
    found = [_dim(dim, rank) for dim in dims]
    require(len(set(found)) == len(found), f"a dim stands twice in {list(dims)}")
    return found


@define("alias_copy.out detach_copy.out lift_fresh_copy.out", "Tensor self")
def _copy(a: HostTensor, out: Out) -> Result:
    return _moved(a, out, lambda array: array)


@define("clone.out", "Tensor self, Optional[MemoryFormat] memory_format")
def _clone(a: HostTensor, _: object, out: Out) -> Result:
    return _copy(a, out)


@define("view_copy.out", "Tensor self, List[int] size")
def _view(a: HostTensor, size: Shape, out: Out) -> Result:
    known = prod(length for length in size if length != -1)
    count = a.array.size
    is_open = size.count(-1) == 1 and known > 0 and count % known == 0
    fits = all(length >= -1 for length in size) and (is_open or (-1 not in size and known == count))
    require(fits, f"{count} elements cannot be {list(size)}")
    shape = tuple(count // known if length == -1 else length for length in size)
    if out.dtype is not a.dtype:
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    return Result(shape, lambda: np.array(a.array.reshape(shape), order="C"))


@define("permute_copy.out", "Tensor self, List[int] dims")
def _permute(a: HostTensor, dims: Shape, out: Out) -> Result:
    order = _dims(dims, a.array.ndim)
    require(len(order) == a.array.ndim, f"{list(dims)} is no order of {a.array.ndim} dims")
    return _moved(a, out, lambda array: array.transpose(order))


@define("transpose_copy.int_out", "Tensor self, int dim0, int dim1")
def _transpose(a: HostTensor, first: int, second: int, out: Out) -> Result:
    one, other = (_dim(dim, a.array.ndim) for dim in (first, second))
    return _moved(a, out, lambda array: array.swapaxes(one, other) if array.ndim else array)


@define("t_copy.out", "Tensor self")
def _t(a: HostTensor, out: Out) -> Result:
    require(a.array.ndim <= 2, f"a tensor {list(a.array.shape)} is no matrix")
    return _moved(a, out, lambda array: array.T)


@define("expand_copy.out", "Tensor self, List[int] size, bool implicit")
def _expand(a: HostTensor, size: Shape, _: bool, out: Out) -> Result:
    shape = a.array.shape
    added = len(size) - len(shape)
    fits = (
        added >= 0
        and all(length >= 0 for length in size[:added])
        and all(
            length == -1 or (length >= 0 and own in (1, length))
            for own, length in zip(shape, size[added:], strict=True)
        )
    )
    require(fits, f"a tensor {list(shape)} cannot be {list(size)}")
    tail = (own if length == -1 else length for own, length in zip(shape, size[added:], strict=True))
    target = (*size[:added], *tail)
    return _moved(a, out, lambda array: np.broadcast_to(array, target))


@define("repeat.out", "Tensor self, List[int] repeats")
def _repeat(a: HostTensor, repeats: Shape, out: Out) -> Result:
    added = len(repeats) - a.array.ndim
    require(
        added >= 0 and all(times >= 0 for times in repeats), f"{list(repeats)} times {list(a.array.shape)}"
    )
    if out.dtype is not a.dtype:
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    sizes = zip((1,) * added + a.array.shape, repeats, strict=True)
    return Result(tuple(size * times for size, times in sizes), lambda: np.tile(a.array, repeats))


@define("unsqueeze_copy.out", "Tensor self, int dim")
def _unsqueeze(a: HostTensor, dim: int, out: Out) -> Result:
    place = _dim(dim, a.array.ndim + 1)
    return _moved(a, out, lambda array: np.expand_dims(array, place))


@define("squeeze_copy.dims_out", "Tensor self, List[int] dim")
def _squeeze(a: HostTensor, dims: Shape, out: Out) -> Result:
    given = _dims(dims, a.array.ndim) if a.array.ndim else []
    gone = tuple(dim for dim in given if a.array.shape[dim] == 1)
    return _moved(a, out, lambda array: array.squeeze(gone))


@define("squeeze_copy.dim_out", "Tensor self, int dim")
def _squeeze_one(a: HostTensor, dim: int, out: Out) -> Result:
    _dim(dim, a.array.ndim)
    return _squeeze(a, (dim,), out)


@define("select_copy.int_out", "Tensor self, int dim, int index")
def _select(a: HostTensor, dim: int, index: int, out: Out) -> Result:
    require(a.array.ndim, "a tensor without dims has nothing to select")
    place = _dim(dim, a.array.ndim)
    size = a.array.shape[place]
    require(-size <= index < size, f"index {index} of a dim of {size}")
    return _moved(a, out, lambda array: array[(slice(None),) * place + (index, ...)])


@define("slice_copy.Tensor_out", "Tensor self, int dim, Optional[int] start, Optional[int] end, int step")
def _slice(a: HostTensor, dim: int, start: int | None, end: int | None, step: int, out: Out) -> Result:
    require(a.array.ndim, "a tensor without dims cannot be sliced")
    require(step > 0, f"a step of {step}")
    place = _dim(dim, a.array.ndim)
    return _moved(a, out, lambda array: array[(slice(None),) * place + (slice(start, end, step),)])


@define("flip.out", "Tensor self, List[int] dims")
def _flip(a: HostTensor, dims: Shape, out: Out) -> Result:
    turned = tuple(_dims(dims, a.array.ndim)) if a.array.ndim else ()
    return _moved(a, out, lambda array: np.flip(array, turned))


@define("split_with_sizes_copy.out", "Tensor self, List[int] split_sizes, int dim", "List[Tensor] out")
def _split(a: HostTensor, sizes: Shape, dim: int, out: tuple[Out, ...]) -> Result:
    place = _dim(dim, a.array.ndim)
    whole = a.array.shape[place] if a.array.ndim else -1
    fits = all(size >= 0 for size in sizes) and sum(sizes) == whole and len(out) == len(sizes)
    require(fits, f"{list(sizes)} are no parts of {whole} for {len(out)} tensors")
    ends = np.cumsum((0, *sizes)).tolist()
    cuts = [(slice(None),) * place + (slice(*pair),) for pair in pairwise(ends)]
    return _parts([a.array[cut] for cut in cuts], a.dtype, out)


@define("unbind_copy.int_out", "Tensor self, int dim", "List[Tensor] out")
def _unbind(a: HostTensor, dim: int, out: tuple[Out, ...]) -> Result:
    require(a.array.ndim, "a tensor without dims has no parts")
    place = _dim(dim, a.array.ndim)
    require(len(out) == a.array.shape[place], f"{a.array.shape[place]} parts for {len(out)} tensors")
    return _parts([a.array[(slice(None),) * place + (index,)] for index in range(len(out))], a.dtype, out)


def _parts(views: list[HostArray], dtype: DType, out: tuple[Out, ...]) -> Result:
    if any(each.dtype is not dtype for each in out):
        raise NeedsTorch(f"{dtype} written to other types")
    return Result([view.shape for view in views], lambda: [np.array(view, order="C") for view in views])


@define("cat.out", "List[Tensor] tensors, int dim")
def _cat(tensors: tuple[HostTensor, ...], dim: int, out: Out) -> Result:
    """One after the other; tensors [0] are nothing, whatever the others' dims."""
    arrays = [tensor.array for tensor in tensors if tensor.array.shape != (0,)]
    if not arrays or any(tensor.dtype is not out.dtype for tensor in tensors):
        raise NeedsTorch("tensors of several types")
    rank = arrays[0].ndim
    require(rank and all(array.ndim == rank for array in arrays), "tensors of several ranks")
    place = _dim(dim, rank)
    rests = {array.shape[:place] + array.shape[place + 1 :] for array in arrays}
    require(len(rests) == 1, f"shapes {[list(array.shape) for array in arrays]} differ beside dim {place}")
    total = sum(array.shape[place] for array in arrays)
    shape = arrays[0].shape
    return Result((*shape[:place], total, *shape[place + 1 :]), lambda: np.concatenate(arrays, place))


@define("stack.out", "List[Tensor] tensors, int dim")
def _stack(tensors: tuple[HostTensor, ...], dim: int, out: Out) -> Result:
    require(tensors, "no tensors to stack")
    if any(tensor.dtype is not out.dtype for tensor in tensors):
        raise NeedsTorch("tensors of several types")
    arrays = [tensor.array for tensor in tensors]
    shape = arrays[0].shape
    require(all(array.shape == shape for array in arrays), "tensors of several shapes")
    place = _dim(dim, len(shape) + 1)
    return Result((*shape[:place], len(arrays), *shape[place:]), lambda: np.stack(arrays, place))


@define("constant_pad_nd.out", "Tensor self, List[int] pad, number value")
def _pad(a: HostTensor, pad: Shape, value: float, out: Out) -> Result:
    array = a.array
    require(len(pad) % 2 == 0 and len(pad) <= 2 * array.ndim, f"{len(pad)} paddings of {array.ndim} dims")
    if any(width < 0 for width in pad) or out.dtype is not a.dtype:
        raise NeedsTorch("paddings that cut")
    element = number_as(value, a.dtype)
    ends = [(0, 0)] * (array.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    shape = tuple(size + sum(width) for size, width in zip(array.shape, ends, strict=True))
    return Result(shape, lambda: np.pad(array, ends, constant_values=element) if ends else array.copy())


@define("tril.out", "Tensor self, int diagonal")
def _tril(a: HostTensor, diagonal: int, out: Out) -> Result:
    return _triangle(a, diagonal, out, np.tril)


@define("triu.out", "Tensor self, int diagonal")
def _triu(a: HostTensor, diagonal: int, out: Out) -> Result:
    return _triangle(a, diagonal, out, np.triu)


def _triangle(a: HostTensor, diagonal: int, out: Out, function: Callable[..., HostArray]) -> Result:
    require(a.array.ndim >= 2, f"a tensor {list(a.array.shape)} is no matrix")
    require(abs(diagonal) < 1 << 31, f"diagonal {diagonal}")
    if out.dtype is not a.dtype:
        raise NeedsTorch(f"{a.dtype} written to {out.dtype}")
    return Result(a.array.shape, lambda: function(a.array, diagonal))
