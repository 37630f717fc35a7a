"""Blocks of a tensor whose elements share a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Operand, require
from pteron.ops.operand import contiguous_strides
from pteron.ops.shapes import axis, broadcast_strides, collapse

RANK_MAX = 16  # separate dims that affine.wgsl walks


@dataclass(frozen=True, slots=True)
class Blocks:
    """A tensor as blocks: the dims to walk over it, and how many blocks one step along each passes."""

    count: int
    sizes: Shape
    strides: Shape


def blocks(x: Operand, block_size: Sequence[AnyInt]) -> Blocks:
    """Blocks of a size given per dim, numbered row by row."""
    block_sizes = [int(size) for size in block_size]
    fits = len(block_sizes) == x.rank and all(
        size == block or (block > 0 and size % block == 0)
        for size, block in zip(x.shape, block_sizes, strict=False)
    )
    require(fits, f"blocks of {block_sizes} must divide x, dim by dim", x)
    whole = [
        (1, size) if size == block else (size // block, block)
        for size, block in zip(x.shape, block_sizes, strict=True)
    ]
    dims = tuple(size for pair in whole for size in pair)
    numbered = tuple(size for count, _ in whole for size in (count, 1))
    sizes, (_, strides) = collapse(dims, contiguous_strides(dims), broadcast_strides(numbered, dims))
    require(len(sizes) <= RANK_MAX, f"blocks of {block_sizes} alternate more than {RANK_MAX} times", x)
    return Blocks(numel(numbered), sizes, strides)


def whole_tensor(x: Operand) -> Blocks:
    """All of a tensor as one block."""
    return Blocks(1, (), ())


def channels(x: Operand, dim: AnyInt) -> Blocks:
    """A block for every index along a dim."""
    at = axis(int(dim), x.rank)
    return blocks(x, [1 if d == at else size for d, size in enumerate(x.shape)])


def tokens(x: Operand) -> Blocks:
    """A block for every row."""
    require(x.rank > 0, "a scalar has no rows", x)
    return blocks(x, (*(1,) * (x.rank - 1), x.shape[-1]))
