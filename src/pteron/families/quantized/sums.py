"""A product plus a tensor: mostly of one live shape, so that the product's own launch adds it; where one of
them is repeated along the other, the sum has a launch of its own."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.elementwise.binary import apply_binary
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, require
from pteron.ops.shapes import broadcast


def sum_shape(product: Shape, addend: Operand) -> Shape:
    """The shape of the sum."""
    return broadcast(_seen(product, addend), addend.shape)


def apart(product: Shape, addend: Operand, out: Operand) -> tuple[Operand, Iterator[Dispatch]] | None:
    """Where one is repeated along the other: a place for the product, and what adds from there."""
    shape = _seen(product, addend)
    if numel(shape) == addend.numel == out.numel:
        return None
    made = out.scratch(shape)
    return made, apply_binary("a + b", made, addend, out)


def _seen(product: Shape, addend: Operand) -> Shape:
    """The product's shape with as many dims as what is added to it has, by leading ones."""
    extra = len(product) - addend.rank
    fits = all(size == 1 for size in product[: max(0, extra)])
    require(fits, f"a product {list(product)} must have {addend.rank} dims, as what is added", addend)
    return (1,) * -extra + product[max(0, extra) :]
