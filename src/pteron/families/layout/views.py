"""Views, which keep the order of their elements: mostly they share their input's buffer and cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.layout.copy import copy_elements
from pteron.ops import (
    AnyInt,
    Dispatch,
    Kind,
    LiveInt,
    LiveShape,
    Operand,
    define,
    numel,
    require,
    same_shape,
    settled,
)
from pteron.ops.operator import ShapeRule
from pteron.ops.shapes import axis


def _view(x: Operand, *rest: object) -> Iterator[Dispatch]:
    out = rest[-1]
    assert isinstance(out, Operand)
    if x.buffer != out.buffer:
        yield copy_elements(x, out)


def view_shape(x: Operand, size: Sequence[AnyInt]) -> LiveShape:
    sizes = _sizes(x, size)
    known = numel(tuple(length for length in sizes if length != -1))
    if -1 in sizes:
        open_size = sizes.count(-1) == 1 and known > 0 and x.numel % known == 0
        require(open_size, f"view as {sizes}: the other sizes must leave a whole number for the one -1", x)
        sizes[sizes.index(-1)] = x.numel // known
    require(numel(tuple(sizes)) == x.numel, f"view as {sizes} must keep the number of elements", x)
    return tuple(sizes)


def _sizes(x: Operand, size: Sequence[AnyInt]) -> list[AnyInt]:
    """Sizes of a view. Files pass those that follow dims as integers: one is the product of neighbouring dims
    that has its value, the last one left is what the others leave."""
    sizes = list(size)
    free = [at for at, length in enumerate(sizes) if isinstance(length, LiveInt) and not length.is_of_dims]
    products = [numel(x.shape[first:last]) for last in range(1, x.rank + 1) for first in range(last)]
    for at in [*free]:
        length = sizes[at]
        assert isinstance(length, LiveInt)
        sizes[at] = length.like(*products)
        if sizes[at] is not length:
            free.remove(at)
    if len(free) == 1:
        length, others = sizes[free[0]], numel((*sizes[: free[0]], *sizes[free[0] + 1 :]))
        assert isinstance(length, LiveInt)
        if isinstance(others, LiveInt) or others > 0:
            sizes[free[0]] = length.like(x.numel // others)
    return [settled(length) for length in sizes]


def _squeeze_shape(x: Operand, dim: Sequence[int]) -> LiveShape:
    # A dynamic dim may be 1 at this call and still stays: only the maximum says what is squeezed.
    named = {axis(d, max(x.rank, 1)) for d in dim}
    dropped = {d for d in named if d < x.rank and x.tensor.shape_max[d] == 1}
    require(all(x.shape[d] == 1 for d in dropped), "only dims of one element can be squeezed", x)
    return tuple(size for d, size in enumerate(x.shape) if d not in dropped)


def _unsqueeze_shape(x: Operand, dim: int) -> LiveShape:
    at = axis(dim, x.rank + 1)
    return (*x.shape[:at], 1, *x.shape[at:])


_TO_COPY = (
    "self dtype:ignored layout:ignored device:ignored pin_memory:ignored non_blocking:ignored "
    "memory_format:ignored -> out"
)
_CLONE = "self non_blocking:ignored dim_order:ignored -> out"
_VIEWS: list[tuple[str, str, ShapeRule]] = [
    ("aten.view_copy.default", "self size:ints -> out", view_shape),
    ("aten.squeeze_copy.dims", "self dim:ints -> out", _squeeze_shape),
    ("aten.unsqueeze_copy.default", "self dim:int -> out", _unsqueeze_shape),
    ("aten.clone.default", "self memory_format:ignored -> out", same_shape),
    ("aten.alias_copy.default", "self -> out", same_shape),
    ("dim_order_ops._clone_dim_order.default", _CLONE, same_shape),
    # `self` only has a shape, which equals the source's.
    ("aten.copy.default", "self:ignored src non_blocking:ignored -> out", same_shape),
    ("aten._to_copy.default", _TO_COPY, same_shape),
    ("dim_order_ops._to_dim_order_copy.default", _TO_COPY, same_shape),
]
for _name, _signature, _shape in _VIEWS:
    define(_name, _signature, shape=_shape, compute=_view, kind=Kind.VIEW)


def _prepack(x: Operand, out: Operand) -> tuple[Dispatch, ...]:
    return ()  # the output's buffer is uploaded from the constant


define("et_vk.prepack.default", "x -> out", shape=same_shape, compute=_prepack, kind=Kind.PREPACK)
