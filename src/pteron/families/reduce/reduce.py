"""Operators that reduce dims: sums, means, extrema, and the index of an extremum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, Target, define, require
from pteron.ops.operand import compute_type
from pteron.ops.rows import row_groups, row_layout
from pteron.ops.shapes import axes, axis, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _reduced_shape(x: Operand, dim: Sequence[int] | None, keepdim: bool, *_: object) -> Shape:
    gone = axes(dim, x.rank)
    sizes = ((1 if d in gone else size, d) for d, size in enumerate(x.shape))
    return tuple(size for size, d in sizes if keepdim or d not in gone)


def _parts(x: Operand, dims: tuple[int, ...]) -> tuple[tuple[Shape, Shape], tuple[Shape, Shape]]:
    """(sizes, strides) of the kept and of the reduced dims."""

    def part(chosen: list[int]) -> tuple[Shape, Shape]:
        sizes, (strides,) = collapse(tuple(x.shape[d] for d in chosen), tuple(x.strides[d] for d in chosen))
        return sizes, strides

    return part([d for d in range(x.rank) if d not in dims]), part(list(dims))


def reduction(name: str, signature: str, *, empty: bool = True, **declarations: str) -> None:
    """An operator over the dims named by its second argument; `empty`: it is defined over no elements."""

    def dispatches(
        x: Operand, dim: Sequence[int] | None, *rest: object, target: Target
    ) -> Iterator[Dispatch]:
        out = rest[-1]
        assert isinstance(out, Operand)
        kept, reduced = _parts(x, axes(dim, x.rank))
        length = numel(reduced[0])
        require(empty or length > 0, f"{name} over no elements", x)
        require(len(kept[0]) <= 4 and len(reduced[0]) <= 4, "at most four separate dims are reduced", x)
        layout = row_layout(target, out.numel, length)
        yield Dispatch(
            kernel("reduce", Lane=compute_type(x, out), **declarations, **layout),
            x=x,
            out=out,
            rows=out.numel,
            length=length,
            kept_rank=len(kept[0]),
            reduced_rank=len(reduced[0]),
            kept_shape=kept[0],
            kept_strides=kept[1],
            reduced_shape=reduced[0],
            reduced_strides=reduced[1],
            groups=row_groups(target, layout, out.numel),
        )

    define(name, signature, shape=_reduced_shape, compute=dispatches)


_SUM = "self dim:ints? keepdim:bool dtype:any -> out"
_EXTREME = "self dim:ints keepdim:bool -> out"
_LARGEST = {"start": "value", "merge": "larger(a, b)", "merge_lanes": "row_max(value, local)"}
# The smallest of the values is the negated largest of their negatives.
_SMALLEST = {
    "start": "-value",
    "merge": "larger(a, -b)",
    "merge_lanes": "row_max(value, local)",
    "finish": "-total",
}
reduction("aten.sum.dim_IntList", _SUM)
reduction("aten.mean.dim", _SUM, finish="total / f32(params.length)")
reduction("aten.amax.default", _EXTREME, empty=False, **_LARGEST)
reduction("aten.amin.default", _EXTREME, empty=False, **_SMALLEST)


def _index_shape(x: Operand, dim: int | None, keepdim: bool) -> Shape:
    return _reduced_shape(x, None if dim is None else (dim,), keepdim)


def index_reduction(name: str, better: str) -> None:
    """An operator that gives the index of a dim's (or the whole tensor's) best element."""

    def dispatches(x: Operand, dim: int | None, keepdim: bool, out: Operand) -> Iterator[Dispatch]:
        at = None if dim is None else axis(dim, max(x.rank, 1))
        length = x.numel if at is None or x.rank == 0 else x.shape[at]
        require(length > 0, f"{name} over no elements", x)
        yield Dispatch(
            kernel("reduce_index", T=compute_type(x), better=better),
            x=x,
            out=out,
            rows=out.numel,
            length=length,
            stride=1 if at is None or x.rank == 0 else x.strides[at],
            threads=out.numel,
        )

    define(name, "self dim:int? keepdim:bool -> out", shape=_index_shape, compute=dispatches)


index_reduction("aten.argmax.default", "a > b")
index_reduction("aten.argmin.default", "a < b")
