"""Operators that pick by several indices, and operators that write or add at indices.

An index out of range picks NaN (zero for integers), and writes nothing; where the indices are an input or a
constant it is an error, as in PyTorch. Writes happen in the order of the indices: the last one wins, and sums
are added in one order, so that results are the same at every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pteron.dtypes import DType, Storage
from pteron.families.create.fill import fill
from pteron.families.elementwise.binary import apply_where
from pteron.families.elementwise.unary import element
from pteron.families.layout.copy import copy_elements, copy_strided
from pteron.ops import AnyInt, Dispatch, Indices, LiveShape, Operand, Scratch, numel, op, require, same_shape
from pteron.ops.operand import compute_type, contiguous_strides
from pteron.ops.shapes import axis, broadcast, broadcast_strides, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
SPAN_MAX = 4096  # writes of one invocation, so that adapters that limit loops do not end it


@dataclass(frozen=True, slots=True)
class Picks:
    """Indices of several dims, broadcast to one shape."""

    dims: tuple[int, ...]
    indices: tuple[Operand, ...]
    shape: LiveShape

    @classmethod
    def of(cls, x: Operand, indices: Sequence[Operand | None]) -> Picks:
        given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
        require(bool(given) and len(indices) <= x.rank, "one dim or more must be indexed", x, *indices)
        for _, index in given:
            require(index.dtype is not DType.BOOL, "indexing by booleans has no fixed shape", x, *indices)
        picked = tuple(index for _, index in given)
        return cls(tuple(dim for dim, _ in given), picked, broadcast(*(index.shape for index in picked)))

    @property
    def place(self) -> int:
        """Where the picked dims are in a result: instead of the first if they are adjacent, else in front."""
        first, last = self.dims[0], self.dims[-1]
        return first if last - first + 1 == len(self.dims) else 0

    def others(self, x: Operand) -> list[int]:
        return [dim for dim in range(x.rank) if dim not in self.dims]

    def shape_of(self, x: Operand) -> LiveShape:
        """The shape of what is picked from x."""
        others = [x.shape[dim] for dim in self.others(x)]
        return (*others[: self.place], *self.shape, *others[self.place :])

    def offsets(self, x: Operand) -> Iterator[Dispatch | Indices | Scratch]:
        """Dispatches that compute an offset in x for each pick, and the scratch memory that holds them."""
        before: Scratch | None = None
        for dim, index in zip(self.dims, self.indices, strict=True):
            size = x.shape[dim]
            yield Indices(index, -size, size - 1)
            shape, (strides,) = collapse(self.shape, broadcast_strides(index.shape, self.shape))
            out = Scratch(numel(self.shape), Storage.I32)
            yield Dispatch(
                kernel("offsets"),
                indices=index,
                before=before,
                out=out,
                count=numel(self.shape),
                rank=len(shape),
                size=size,
                stride=x.strides[dim],
                shape=shape,
                strides=strides,
                threads=numel(self.shape),
            )
            before = out
        assert before is not None
        yield before


def gather_many(x: Operand, indices: Sequence[Operand | None], out: Operand) -> Iterator[Dispatch | Indices]:
    """x[indices] with one index or more, each of any shape."""
    picks = Picks.of(x, indices)
    *steps, offsets = picks.offsets(x)
    for step in steps:
        assert not isinstance(step, Scratch)
        yield step
    assert isinstance(offsets, Scratch)
    rank, place = len(picks.shape), picks.place
    steps_of_x = [x.strides[dim] for dim in picks.others(x)]
    x_strides = (*steps_of_x[:place], *(0,) * rank, *steps_of_x[place:])
    inside = contiguous_strides(picks.shape)
    pick_strides = (*(0,) * place, *inside, *(0,) * (out.rank - place - rank))
    shape, (x_strides, pick_strides) = collapse(out.shape, x_strides, pick_strides)
    yield Dispatch(
        kernel("gather_offsets"),
        IS_INTEGER=not x.dtype.is_float,
        x=x,
        offsets=offsets,
        out=out,
        count=out.numel,
        rank=len(shape),
        shape=shape,
        x_strides=x_strides,
        pick_strides=pick_strides,
        threads=out.numel,
    )


# Writes -----------------------------------------------------------------------------------------

_COMBINE = {
    "write": "b",
    "sum": "a + b",
    "prod": "a * b",
    "amax": "larger(a, b)",
    "amin": "smaller(a, b)",
}


@dataclass(frozen=True, slots=True)
class Writes:
    """`count` writes for each base: dims of the bases, and steps of indices, values and `out` in memory."""

    count: AnyInt
    shape: LiveShape
    out_strides: LiveShape
    index_strides: LiveShape
    value_strides: LiveShape
    size: AnyInt
    stride: AnyInt
    index_step: AnyInt
    value_step: AnyInt


def scatter_writes(
    writes: Writes, indices: Operand | Scratch, values: Operand, out: Operand, how: str
) -> Iterator[Dispatch]:
    compute = compute_type(values, out)
    shape, (out_strides, index_strides, value_strides) = collapse(
        writes.shape, writes.out_strides, writes.index_strides, writes.value_strides
    )
    bases = numel(writes.shape)
    first = 0
    while bases and first < writes.count:
        end = min(first + SPAN_MAX, writes.count)
        yield Dispatch(
            kernel("scatter", T=compute, combine=element(_COMBINE[how], compute, out)),
            indices=indices,
            values=values,
            out=out,
            count=bases,
            rank=len(shape),
            first=first,
            end=end,
            span=end - first,
            size=writes.size,
            stride=writes.stride,
            index_step=writes.index_step,
            value_step=writes.value_step,
            shape=shape,
            out_strides=out_strides,
            index_strides=index_strides,
            value_strides=value_strides,
            threads=bases,
        )
        first += SPAN_MAX


def _put_shape(x: Operand, *_: object) -> LiveShape:
    return x.shape


@op(
    "aten.index_put.default",
    "self indices:tensors values accumulate:bool -> out",
    shape=_put_shape,
)
def index_put(
    x: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool, out: Operand
) -> Iterator[Dispatch | Indices]:
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype is DType.BOOL:
        require(
            values.numel == 1 and not accumulate, "a mask takes one value for all of its elements", x, mask
        )
        require(mask.shape == x.shape[: mask.rank], "the mask must have the first dims of x", x, mask)
        lifted = mask.reshaped((*mask.shape, *(1,) * (x.rank - mask.rank)))
        yield from apply_where(lifted, values.reshaped(()), x, out)
        return
    picks = Picks.of(x, indices)
    yield copy_elements(x, out)
    *steps, offsets = picks.offsets(x)
    for step in steps:
        assert not isinstance(step, Scratch)
        yield step
    assert isinstance(offsets, Scratch)
    result = picks.shape_of(x)
    require(broadcast(values.shape, result) == result, f"values must broadcast to {list(result)}", x, values)
    strides = broadcast_strides(values.shape, result)
    place, rank = picks.place, len(picks.shape)
    flat_shape, (flat_strides,) = collapse(picks.shape, strides[place : place + rank])
    if len(flat_shape) > 1:  # the values of successive picks are not at even steps
        expanded = values.scratch(result)
        yield copy_strided(values, expanded, result, strides, contiguous_strides(result))
        values, strides = expanded, contiguous_strides(result)
        flat_strides = (strides[place + rank - 1],)
    others = picks.others(x)
    writes = Writes(
        count=numel(picks.shape),
        shape=tuple(x.shape[dim] for dim in others),
        out_strides=tuple(x.strides[dim] for dim in others),
        index_strides=(0,) * len(others),
        value_strides=(*strides[:place], *strides[place + rank :]),
        size=x.numel,
        stride=1,
        index_step=1,
        value_step=flat_strides[0] if flat_strides else 0,
    )
    yield from scatter_writes(writes, offsets, values, out, "sum" if accumulate else "write")


def _scatter(
    x: Operand, dim: int, index: Operand, values: Operand, out: Operand, how: str
) -> Iterator[Dispatch | Indices]:
    at = axis(dim, max(x.rank, 1))
    yield copy_elements(x, out)
    if index.numel == 0:
        return
    size = x.shape[at] if x.rank else 1
    fits = index.rank == x.rank and all(
        there <= of for d, (there, of) in enumerate(zip(index.shape, x.shape, strict=True)) if d != at
    )
    require(fits, f"index must be within x except in dim {dim}", x, index)
    yield Indices(index, 0, size - 1)
    if values.numel > 1 or index.numel == 1:
        within = values.rank == index.rank and all(
            there <= of for there, of in zip(index.shape, values.shape, strict=True)
        )
        require(within or values.rank == 0, "index must be within the values", index, values)
    is_number = values.rank == 0 and index.rank > 0
    value_strides = (0,) * index.rank if is_number else values.strides
    others = [d for d in range(index.rank) if d != at]
    writes = Writes(
        count=index.shape[at] if index.rank else 1,
        shape=tuple(index.shape[d] for d in others),
        out_strides=tuple(x.strides[d] for d in others),
        index_strides=tuple(index.strides[d] for d in others),
        value_strides=tuple(value_strides[d] for d in others),
        size=size,
        stride=x.strides[at] if x.rank else 1,
        index_step=index.strides[at] if index.rank else 1,
        value_step=value_strides[at] if index.rank else 1,
    )
    yield from scatter_writes(writes, index, values, out, how)


@op("aten.scatter.src", "self dim:int index src -> out", shape=same_shape)
def scatter(x: Operand, dim: int, index: Operand, src: Operand, out: Operand) -> Iterator[Dispatch | Indices]:
    return _scatter(x, dim, index, src, out, "write")


@op("aten.scatter.value", "self dim:int index value:number -> out", shape=same_shape)
def scatter_value(
    x: Operand, dim: int, index: Operand, value: float, out: Operand
) -> Iterator[Dispatch | Indices]:
    number = out.scratch(())
    yield fill(number, value)
    yield from _scatter(x, dim, index, number, out, "write")


@op("aten.scatter_add.default", "self dim:int index src -> out", shape=same_shape)
def scatter_add(
    x: Operand, dim: int, index: Operand, src: Operand, out: Operand
) -> Iterator[Dispatch | Indices]:
    return _scatter(x, dim, index, src, out, "sum")


@op(
    "aten.scatter_reduce.two",
    "self dim:int index src reduce:str include_self:bool -> out",
    shape=same_shape,
)
def scatter_reduce(
    x: Operand, dim: int, index: Operand, src: Operand, reduce: str, include_self: bool, out: Operand
) -> Iterator[Dispatch | Indices]:
    known = [how for how in _COMBINE if how != "write"]
    require(reduce in known and include_self, f"scatter_reduce knows {known} with include_self", x)
    return _scatter(x, dim, index, src, out, reduce)
