"""Operators that pick slices of a tensor by index.

An index out of range is an error in PyTorch, and here too where the indices are an input or a constant. Where
only the GPU knows them, which cannot raise it, the slice becomes NaN (zero for integers), and no later
operator hides that. Negative indices count from the end in index.Tensor, and are out of range in embedding,
index_select and gather, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.index.scatter import Picks, gather_many
from pteron.ops import Dispatch, Indices, LiveShape, Operand, numel, op, require
from pteron.ops.shapes import axis
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _gather(
    x: Operand, dim: int, indices: Operand, out: Operand, *, from_end: bool = False
) -> Iterator[Dispatch | Indices]:
    """Slices of x along `dim`; `from_end` lets negative indices count from there."""
    size = x.shape[dim] if x.rank else 1
    yield Indices(indices, -size if from_end else 0, size - 1)
    yield Dispatch(
        kernel("gather"),
        FROM_END=from_end,
        IS_INTEGER=not x.dtype.is_float,
        x=x,
        indices=indices,
        out=out,
        count=out.numel,
        picks=indices.numel,
        size=size,
        inner=numel(x.shape[dim + 1 :]),
        threads=out.numel,
    )


def _embedding_shape(weight: Operand, indices: Operand) -> LiveShape:
    require(weight.rank == 2, "weight must be a matrix", weight)
    return (*indices.shape, weight.shape[1])


@op(
    "aten.embedding.default",
    "weight indices padding_idx:ignored scale_grad_by_freq:ignored sparse:ignored -> out",
    shape=_embedding_shape,
)
def embedding(weight: Operand, indices: Operand, out: Operand) -> Iterator[Dispatch | Indices]:
    return _gather(weight, 0, indices, out)


def _index_select_shape(x: Operand, dim: int, index: Operand) -> LiveShape:
    at = axis(dim, max(x.rank, 1))
    require(index.rank <= 1, "index must have one dim", index)
    require(x.rank > 0 or index.numel == 1, "a scalar is picked from once", x, index)
    return (*x.shape[:at], index.numel, *x.shape[at + 1 :]) if x.rank else ()


@op("aten.index_select.default", "self dim:int index -> out", shape=_index_select_shape)
def index_select(x: Operand, dim: int, index: Operand, out: Operand) -> Iterator[Dispatch | Indices]:
    return _gather(x, axis(dim, max(x.rank, 1)), index, out)


def _index_shape(x: Operand, indices: Sequence[Operand | None]) -> LiveShape:
    return Picks.of(x, indices).shape_of(x)


@op("aten.index.Tensor", "self indices:tensors -> out", shape=_index_shape)
def index(x: Operand, indices: Sequence[Operand | None], out: Operand) -> Iterator[Dispatch | Indices]:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) == 1:
        dim, picks = given[0]
        return _gather(x, dim, picks, out, from_end=True)
    return gather_many(x, indices, out)


def _gather_shape(x: Operand, dim: int, index: Operand) -> LiveShape:
    at = axis(dim, max(x.rank, 1))
    fits = index.rank == x.rank and all(
        picked <= size for d, (picked, size) in enumerate(zip(index.shape, x.shape, strict=True)) if d != at
    )
    require(fits or index.numel == 0, f"index must be within x except in dim {dim}", x, index)
    return index.shape


@op("aten.gather.default", "self dim:int index sparse_grad:ignored -> out", shape=_gather_shape)
def gather(x: Operand, dim: int, index: Operand, out: Operand) -> Iterator[Dispatch | Indices]:
    at = axis(dim, max(x.rank, 1))
    yield Indices(index, 0, (x.shape[at] if x.rank else 1) - 1)
    yield Dispatch(
        kernel("gather_each"),
        IS_INTEGER=not x.dtype.is_float,
        x=x,
        indices=index,
        out=out,
        count=out.numel,
        rank=out.rank,
        size=x.shape[at] if x.rank else 1,
        stride=x.strides[at] if x.rank else 1,
        shape=out.shape,
        x_strides=tuple(0 if d == at else step for d, step in enumerate(x.strides)),
        threads=out.numel,
    )
