"""Arithmetic on shapes and strides that operator families share."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.ops.live import AnyInt, LiveShape
from pteron.ops.operand import Operand, contiguous_strides
from pteron.ops.requirement import RequirementError, require


def axis(dim: int, rank: int) -> int:
    """A dim counted from the front, whichever end it was counted from.

    If a scalar counts as a vector of one, pass a rank of at least 1.
    """
    dim = int(dim)
    require(-rank <= dim < rank, f"dim {dim} is out of range for rank {rank}")
    return dim % rank


def axes(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Several dims, in order; none named means all of them."""
    found = sorted(axis(dim, max(rank, 1)) for dim in dims) if dims else range(rank)
    require(len(set(found)) == len(found), f"dims {dims} name one dim twice")
    return tuple(found) if rank else ()


def check_live_slice(size: AnyInt, start: AnyInt, end: AnyInt) -> None:
    """Raise unless a slice between two live integers is within a dim of this size. It comes from `narrow`,
    whose checks exporters drop. A slice with one live bound is shortened, as PyTorch does it."""
    is_within = start >= 0 and start <= end and end <= size
    require(is_within, f"a slice at {start} to {end} leaves its dim, which has size {size}")


def broadcast(*shapes: LiveShape) -> LiveShape:
    """The shape that several broadcast to."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*aligned, strict=True):
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide[1:]):
            raise RequirementError(
                f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast together"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def broadcast_shape(*operands: Operand) -> LiveShape:
    """The shape rule of operators that combine elements of tensors."""
    return broadcast(*(operand.shape for operand in operands if isinstance(operand, Operand)))


def broadcast_strides(shape: LiveShape, to: LiveShape) -> LiveShape:
    """Strides by which a tensor of `shape` is read at every index of `to`."""
    lead = len(to) - len(shape)
    strides = contiguous_strides(shape)
    return (0,) * lead + tuple(0 if size == 1 else step for size, step in zip(shape, strides, strict=True))


def collapse(shape: LiveShape, *strides: LiveShape) -> tuple[LiveShape, list[LiveShape]]:
    """The same walk over memory in as few dims as possible: neighbours that every tensor walks
    as one are merged, dims of size 1 are dropped."""
    kept: list[tuple[AnyInt, LiveShape]] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if kept and all(outer == step * size for outer, step in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, tuple(steps))
        else:
            kept.append((size, tuple(steps)))
    sizes = tuple(size for size, _ in kept)
    return sizes, [tuple(steps[i] for _, steps in kept) for i in range(len(strides))]
