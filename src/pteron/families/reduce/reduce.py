"""Operators that reduce dims: sums, means, extrema, and the index of an extremum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pteron.dtypes import Storage
from pteron.families.reduce.fold import LARGEST, RANK_MAX, SUM, Rows, fold
from pteron.graph import Shape
from pteron.ops import Dispatch, Operand, Scratch, Target, define, require
from pteron.ops.operand import compute_type
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.ops.shapes import axes, axis, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _reduced_shape(x: Operand, dim: Sequence[int] | None, keepdim: bool, *_: object) -> Shape:
    gone = axes(dim, x.rank)
    sizes = ((1 if d in gone else size, d) for d, size in enumerate(x.shape))
    return tuple(size for size, d in sizes if keepdim or d not in gone)


def _rows(x: Operand, dims: tuple[int, ...]) -> Rows:
    """One row per element of the dims that are kept."""

    def part(chosen: list[int]) -> tuple[Shape, Shape]:
        sizes, (strides,) = collapse(tuple(x.shape[d] for d in chosen), tuple(x.strides[d] for d in chosen))
        return sizes, strides

    return Rows(x, part([d for d in range(x.rank) if d not in dims]), part(list(dims)))


def reduction(
    name: str,
    signature: str,
    by: Mapping[str, str] = SUM,
    *,
    empty: bool = True,
    floats: bool = False,
    finish: str = "total",
    mirrored: bool = False,
) -> None:
    """An operator over the dims named by its second argument; `empty`: it is defined over no elements,
    `floats`: only floats come out of it, `mirrored`: it merges the values in the opposite order."""

    def dispatches(
        x: Operand, dim: Sequence[int] | None, *rest: object, target: Target
    ) -> Iterator[Dispatch]:
        out = rest[-1]
        assert isinstance(out, Operand)
        require(out.dtype.is_float or not floats, f"{name} makes floats", out)
        rows = _rows(x, axes(dim, x.rank))
        require(empty or rows.length > 0, f"{name} over no elements", x)
        separate = max(len(rows.kept[0]), len(rows.reduced[0]))
        require(separate <= RANK_MAX, f"at most {RANK_MAX} separate dims are reduced or kept", x)
        lane = compute_type(x, out)
        mirror = ("~" if lane == "i32" else "-") if mirrored else ""  # the least integer has no negative
        yield from fold(rows, out, target, by, lane=lane, take=f"{mirror}value", finish=f"{mirror}{finish}")

    define(name, signature, shape=_reduced_shape, compute=dispatches)


_SUM = "self dim:ints? keepdim:bool dtype:ignored -> out"
_EXTREME = "self dim:ints keepdim:bool -> out"
reduction("aten.sum.dim_IntList", _SUM)
reduction("aten.mean.dim", _SUM, floats=True, finish="total / f32(params.count)")
reduction("aten.amax.default", _EXTREME, LARGEST, empty=False)
# The smallest of the values is the mirrored largest of their mirror images.
reduction("aten.amin.default", _EXTREME, LARGEST, empty=False, mirrored=True)


def _index_shape(x: Operand, dim: int | None, keepdim: bool) -> Shape:
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
            chosen: dict[str, str] = (
                {} if candidates is None else {"candidate": "u32(candidates[row * params.count + i])"}
            )
            yield Dispatch(
                kernel("reduce_index", T=compute_type(x), better=better, **chosen, **layout),
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
