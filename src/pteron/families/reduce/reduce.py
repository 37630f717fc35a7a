"""Operators that reduce dims: sums, means, extrema, and the index of an extremum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pteron.dtypes import Storage
from pteron.families.create.fill import fill
from pteron.families.layout.copy import copy_strided
from pteron.families.reduce.fold import LARGEST, PRODUCT, RANK_MAX, SUM, Rows, fold
from pteron.ops import OPERATORS, Dispatch, Indices, LiveShape, Operand, Scratch, Target, define, op, require
from pteron.ops.operand import compute_type
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.ops.shapes import axes, axis, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
Dims: TypeAlias = Sequence[int] | int | None  # None: all of them


def _reduced_shape(x: Operand, dim: Dims, keepdim: bool, *_: object) -> LiveShape:
    gone = _axes(dim, x.rank)
    sizes = ((1 if d in gone else size, d) for d, size in enumerate(x.shape))
    return tuple(size for size, d in sizes if keepdim or d not in gone)


def _axes(dim: Dims, rank: int) -> tuple[int, ...]:
    return axes((dim,) if isinstance(dim, int) else dim, rank)


def _rows(x: Operand, dims: tuple[int, ...]) -> Rows:
    """One row per element of the dims that are kept."""

    def part(chosen: list[int]) -> tuple[LiveShape, LiveShape]:
        sizes, (strides,) = collapse(tuple(x.shape[d] for d in chosen), tuple(x.strides[d] for d in chosen))
        return sizes, strides

    return Rows(x, part([d for d in range(x.rank) if d not in dims]), part(list(dims)))


def _variance_shape(x: Operand, dim: Dims, correction: object, keepdim: bool) -> LiveShape:
    return _reduced_shape(x, dim, keepdim)


def _walkable(x: Operand, dims: tuple[int, ...]) -> tuple[Rows, *tuple[Dispatch, ...]]:
    """The rows, in x or, if they have too many separate dims for the kernel, in a copy with the reduced dims
    last; and the dispatch that makes the copy."""
    rows = _rows(x, dims)
    if max(len(rows.kept[0]), len(rows.reduced[0])) <= RANK_MAX:
        return (rows,)
    order = [*(d for d in range(x.rank) if d not in dims), *dims]
    copy = x.scratch(tuple(x.shape[d] for d in order))
    move = copy_strided(x, copy, copy.shape, tuple(x.strides[d] for d in order), copy.strides)
    return _rows(copy, tuple(range(x.rank - len(dims), x.rank))), move


def reduction(
    name: str,
    signature: str,
    by: Mapping[str, bool] = SUM,
    *,
    empty: bool = True,
    floats: bool = False,
    finish: str = "total",
    mirrored: bool = False,
) -> None:
    """An operator over the dims named by its second argument; `empty`: it is defined over no elements,
    `floats`: only floats come out of it, `mirrored`: it merges the values in the opposite order."""

    def dispatches(x: Operand, dim: Dims, *rest: object, target: Target) -> Iterator[Dispatch]:
        out = rest[-1]
        assert isinstance(out, Operand)
        require(out.dtype.is_float or not floats, f"{name} makes floats", out)
        rows, *moved = _walkable(x, _axes(dim, x.rank))
        yield from moved
        require(empty or rows.length > 0, f"{name} over no elements", x)
        lane = compute_type(x, out)
        mirror = ("~" if lane == "i32" else "-") if mirrored else ""  # the least integer has no negative
        yield from fold(rows, out, target, by, lane=lane, take=f"{mirror}value", finish=f"{mirror}{finish}")

    define(name, signature, shape=_reduced_shape, compute=dispatches)


def _of_all(name: str, of_dims: str, signature: str = "self dtype:ignored -> out") -> None:
    """An operator over all dims, by the operator over some."""

    def dispatches(x: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
        yield from OPERATORS[of_dims].compute(x, None, False, out, target=target)

    define(name, signature, shape=lambda x: (), compute=dispatches)


_SUM = "self dim:ints? keepdim:bool dtype:ignored -> out"
_EXTREME = "self dim:ints keepdim:bool -> out"
reduction("aten.sum.dim_IntList", _SUM)
reduction("aten.mean.dim", _SUM, floats=True, finish="total / f32(params.count)")
reduction("aten.amax.default", _EXTREME, LARGEST, empty=False)
reduction("aten.prod.dim_int", "self dim:int keepdim:bool dtype:ignored -> out", PRODUCT)
_of_all("aten.sum.default", "aten.sum.dim_IntList")
_of_all("aten.mean.default", "aten.mean.dim")
_of_all("aten.prod.default", "aten.prod.dim_int")
_of_all("aten.max.default", "aten.amax.default", "self -> out")
_of_all("aten.min.default", "aten.amin.default", "self -> out")
# The smallest of the values is the mirrored largest of their mirror images.
reduction("aten.amin.default", _EXTREME, LARGEST, empty=False, mirrored=True)


def _any(x: Operand, dim: Dims, keepdim: bool, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    rows, *moved = _walkable(x, _axes(dim, x.rank))
    if rows.length == 0:
        yield fill(out, 0)
        return
    yield from moved
    lane = compute_type(x)
    yield from fold(rows, out, target, LARGEST, lane=lane, take="select(Lane(1), Lane(), value == Lane())")


for _name, _dim in (("dim", "dim:int"), ("dims", "dim:ints?")):
    define(f"aten.any.{_name}", f"self {_dim} keepdim:bool -> out", shape=_reduced_shape, compute=_any)
_of_all("aten.any.default", "aten.any.dims", "self -> out")


def _variance(x: Operand, dim: Dims, correction: float, out: Operand, target: Target) -> Iterator[Dispatch]:
    """The mean of squared distances to the mean, over the count less `correction`. The mean is in two parts:
    of large numbers that are close together, one alone is rounded by as much as they are apart."""
    require(x.dtype.is_float, "var takes floats", x)
    rows, *moved = _walkable(x, _axes(dim, x.rank))
    yield from moved
    mean, rest = Scratch(out.numel), Scratch(out.numel)
    average = "total / f32(params.count)"
    yield from fold(rows, mean, target, SUM, finish=average)
    yield from fold(rows, rest, target, SUM, take="value - of_row[row]", of_row=mean, finish=average)
    yield from fold(
        rows,
        out,
        target,
        SUM,
        take="square((value - of_row[row]) - rest_of_row[row])",
        of_row=mean,
        rest_of_row=rest,
        finish=f"total / max(f32(params.count) - {float(correction)}, 0.0)",
    )


@op("aten.var.correction", "self dim:ints? correction:number? keepdim:bool -> out", shape=_variance_shape)
def var_correction(
    x: Operand, dim: Dims, correction: float | None, keepdim: bool, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    return _variance(x, dim, 1 if correction is None else correction, out, target)


@op("aten.var.dim", "self dim:ints? unbiased:bool keepdim:bool -> out", shape=_variance_shape)
def var_dim(
    x: Operand, dim: Dims, unbiased: bool, keepdim: bool, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    return _variance(x, dim, int(unbiased), out, target)


def _index_shape(x: Operand, dim: int | None, keepdim: bool) -> LiveShape:
    return _reduced_shape(x, None if dim is None else (dim,), keepdim)


def index_reduction(name: str, better: str) -> None:
    """An operator that gives the index of a dim's (or the whole tensor's) best element."""

    def dispatches(
        x: Operand, dim: int | None, keepdim: bool, out: Operand, *, target: Target
    ) -> Iterator[Dispatch]:
        at = None if dim is None else axis(dim, max(x.rank, 1))
        length = x.numel if at is None or x.rank == 0 else x.shape[at]
        require(length > 0, f"{name} over no elements", x)
        stride = 1 if at is None or x.rank == 0 else x.strides[at]
        candidates, count = None, length  # of a row: all of its elements, then the best of every part
        while True:
            layout = row_layout(target, out.numel, count)
            parts, span = row_parts(layout, count)
            stage = out if parts == 1 else Scratch(out.numel * parts, Storage.I32)
            yield Dispatch(
                kernel("reduce_index", T=compute_type(x), better=better),
                **layout,
                x=x,
                candidates=candidates,
                out=stage,
                rows=out.numel,
                parts=parts,
                count=count,
                span=span,
                length=length,
                stride=stride,
                groups=row_groups(target, layout, out.numel * parts),
            )
            if parts == 1:
                return
            assert isinstance(stage, Scratch)
            candidates, count = stage, parts

    define(name, "self dim:int? keepdim:bool -> out", shape=_index_shape, compute=dispatches)


index_reduction("aten.argmax.default", "a > b")
index_reduction("aten.argmin.default", "a < b")


def extreme_with_index(name: str, index_of: str) -> None:
    """An operator that gives the best element of a dim and its index."""

    def shapes(x: Operand, dim: int, keepdim: bool) -> tuple[LiveShape, LiveShape]:
        shape = _reduced_shape(x, dim, keepdim)
        return shape, shape

    def dispatches(
        x: Operand, dim: int, keepdim: bool, values: Operand, indices: Operand, *, target: Target
    ) -> Iterator[Dispatch | Indices]:
        yield from OPERATORS[index_of].compute(x, dim, keepdim, indices, target=target)
        kept = _reduced_shape(x, dim, True)
        for each in OPERATORS["aten.gather.default"].compute(
            x, dim, indices.reshaped(kept), values.reshaped(kept)
        ):
            if isinstance(each, Dispatch):  # the indices are in range
                yield each

    define(name, "self dim:int keepdim:bool -> values indices", shape=shapes, compute=dispatches)


extreme_with_index("aten.max.dim", "aten.argmax.default")
extreme_with_index("aten.min.dim", "aten.argmin.default")
