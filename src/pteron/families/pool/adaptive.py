"""Pools to a given size, of signals, planes and volumes: one dim after the other, from the last on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pteron.dtypes import Storage
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, define, numel, require
from pteron.ops.row_layout import WALK_MAX
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _steps(x: Operand, out: Operand, dims: int) -> Iterator[tuple[LiveShape, LiveShape, dict[str, Any]]]:
    """Each dim's turn: the shapes before and after it, and the parameters of its kernel."""
    shape = x.shape
    for d in range(x.rank - 1, x.rank - 1 - dims, -1):
        size, out_size = shape[d], out.shape[d]
        window = size // out_size + 2
        require(window <= WALK_MAX + 2, f"windows of {window} elements: at most {WALK_MAX} are pooled", x)
        after = (*shape[:d], out_size, *shape[d + 1 :])
        walk = {"outer": numel(shape[:d]), "inner": numel(shape[d + 1 :])}
        yield shape, after, {**walk, "size": size, "out_size": out_size, "window": window}
        shape = after


def _pooled(
    dims: int, x: Operand, size: object, out: Operand, indices: Operand | None = None
) -> Iterator[Dispatch]:
    """The averages, or the largest elements and their indices."""
    source: Operand | Scratch = x
    before: Scratch | None = None
    if out.numel == 0:
        return
    steps, plane = list(_steps(x, out, dims)), 1
    for turn, (_, after, parameters) in enumerate(steps, 1):
        is_last = turn == len(steps)
        result = out if is_last else Scratch(numel(after))
        found = indices if is_last or indices is None else Scratch(numel(after), Storage.I32)
        yield Dispatch(
            kernel("adaptive_pool"),
            x=source,
            before=before,
            out=result,
            indices=found,
            **parameters,
            plane=None if found is None else plane,
            threads=numel(after),
        )
        plane *= parameters["size"]
        source, before = result, found if isinstance(found, Scratch) else None


def adaptive(name: str, dims: int, *, largest: bool = False) -> None:
    """A pool over the last dims; the largest elements come with their indices in these dims."""

    def shape(x: Operand, output_size: Sequence[AnyInt]) -> Any:
        fits = x.rank in (dims + 1, dims + 2) and len(output_size) == dims and x.dtype.is_float
        require(fits, f"{name} takes {dims + 1} or {dims + 2} dims of floats and {dims} sizes", x)
        require(0 not in x.shape[-dims:], "pools take planes that are not empty", x)
        sizes = tuple(map(int, output_size))
        require(min(sizes) >= 0, f"output_size {list(sizes)} must not be negative", x)
        pooled = (*x.shape[:-dims], *sizes)
        return (pooled, pooled) if largest else pooled

    outputs = "out indices" if largest else "out"

    define(name, f"self output_size:ints -> {outputs}", shape=shape, compute=partial(_pooled, dims))


adaptive("aten.adaptive_avg_pool1d.default", 1)
for _dims in (2, 3):
    adaptive(f"aten._adaptive_avg_pool{_dims}d.default", _dims)
    adaptive(f"aten.adaptive_max_pool{_dims}d.default", _dims, largest=True)
