"""Products with constant f32 weights from uniform arrays (matmul_uniform.wgsl), the fastest loads on software
adapters: how columns, k and rows are split into launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from pteron.dtypes import Storage
from pteron.ops import AnyInt, LiveInt, Operand, OperandSlice, Scratch, Target, Weight, bucket, parts_of
from pteron.ops.operand import HostArray, packing
from pteron.ops.uniform_arrays import Cut, room

ARRAYS = "abcdefgh"  # of one launch
WORKGROUP = 8  # invocations; as ARRAYS, a constant of the kernel
TILES = (8, 4, 1)  # rows of an invocation; the largest that fits is used
PRODUCTS_MIN = 1 << 13  # with fewer, uploading arrays costs more than it saves
UNIFORM_ROWS_MIN = 1 << 21  # products from which rows, too, are uniform arrays
UNIFORM_LAUNCHES_MAX = 128  # with rows as uniform arrays: with more, planning costs more than it saves
LAUNCHES_MAX = 2048  # with weights alone: a launch of full arrays computes 131,072 products or more


@dataclass(frozen=True, slots=True)
class UniformProduct:
    """A launch takes eight arrays of weights, and `uniform_rows` rows of x from a uniform array, or all of
    them from a storage buffer if that is 0."""

    x: Operand
    weight: Operand
    rows: AnyInt
    is_along: bool  # k runs along rows of the weights
    columns: Cut  # in blocks of four
    depth: Cut  # in quads
    tile: int
    uniform_rows: int = 0
    bands: tuple[tuple[int, AnyInt], ...] = ((0, 1),)  # first rows, and whether there are any (`parts_of`)

    @property
    def span(self) -> int:
        """k of a part."""
        return 4 * self.depth.piece

    @property
    def room(self) -> int:
        return room(self.columns.piece * self.span)

    @property
    def count(self) -> int:
        return self.depth.launches * self.columns.launches * len(self.bands)

    @property
    def overrides(self) -> dict[str, Any]:
        rows = {"ROWS": self.uniform_rows, "A_ROOM": self.uniform_rows * self.span // 4}
        return {"TILE": self.tile, "ROOM": self.room, **(rows if self.uniform_rows else {})}

    def launches(self) -> Iterator[dict[str, Any]]:
        """What each launch binds, its parameters and grid."""
        blocks, (columns, depth) = self.columns.piece, _sizes(self.weight, self.is_along)
        tiles = -(-(self.rows if len(self.bands) == 1 else self.uniform_rows) // self.tile)
        for (part, first_k), first in product(enumerate(self.depth.firsts), self.columns.firsts):
            arrays = {
                f"b_{name}": self.weight.packed(
                    *("columns of a uniform array", 4 * block, blocks),
                    *(4 * first_k, self.span, int(self.is_along), self.room),
                    count=4 * self.room,
                    storage=Storage.F32,
                )
                for name, block in zip(ARRAYS, self.columns.places(first), strict=True)
            }
            for first_row, is_there in self.bands:
                rows = OperandSlice(self.x, first_row * depth) if self.uniform_rows else self.x
                yield {
                    "a_rows" if self.uniform_rows else "a": rows,
                    **arrays,
                    "first": 4 * first,
                    "columns": min(4 * blocks * len(ARRAYS), columns - 4 * first),
                    "first_row": first_row,
                    "part": part,
                    "blocks": blocks,
                    "threads": -(-4 * blocks // WORKGROUP) * WORKGROUP * tiles * is_there,
                }


@packing("columns of a uniform array")
def in_uniform_array(
    weight: HostArray, first: int, blocks: int, first_k: int, span: int, is_along: int, room: int
) -> HostArray:
    """[block][k][column] of some columns and k; zeros past the last ones, up to `room` vec4s."""
    matrix = weight if is_along else weight.T
    taken = matrix[first : first + 4 * blocks, first_k : first_k + span]
    made = np.zeros((room, 4), np.float32)
    quads = np.pad(taken, ((0, 4 * blocks - taken.shape[0]), (0, span - taken.shape[1])))
    made[: blocks * span] = quads.reshape(blocks, 4, span).transpose(0, 2, 1).reshape(-1, 4)
    return made


def choose(
    target: Target, x: Operand | Scratch, weight: Operand | Weight, rows: AnyInt, is_along: bool
) -> UniformProduct | None:
    """How to split a product for a software adapter; None if matmul_uniform cannot run, or is not faster."""
    if not (target.has_uniform_arrays and _is_plain(x, weight)):
        return None
    assert isinstance(x, Operand)
    assert isinstance(weight, Operand)
    columns, depth = _sizes(weight, is_along)
    if rows * columns * depth < PRODUCTS_MIN:
        return None
    quads = 1 << (target.uniform_bytes_max // 16).bit_length() - 1
    parts = Cut.of(-(-depth // 4), quads // 4)
    blocks = Cut.of(-(-columns // 4), quads // (4 * parts.piece), len(ARRAYS))
    tile = next(tile for tile in TILES if tile <= rows)
    made = UniformProduct(x, weight, rows, is_along, blocks, parts, tile)
    return (x.has_slack and _with_uniform_rows(made, target)) or (
        made if made.count <= LAUNCHES_MAX else None
    )


def _with_uniform_rows(plain: UniformProduct, target: Target) -> UniformProduct | None:
    """The same with rows from uniform arrays, as many as fit; None if they do not suit."""
    columns, depth = _sizes(plain.weight, plain.is_along)
    rows = bucket(plain.rows) if isinstance(plain.rows, LiveInt) else plain.rows
    fitting = min(rows, target.uniform_bytes_max // (4 * depth))
    is_large = plain.rows * columns * depth >= UNIFORM_ROWS_MIN
    if plain.span != depth or fitting == 0 or not is_large:
        return None
    tile = next(tile for tile in TILES if tile <= fitting)
    uniform_rows = tile << (fitting // tile).bit_length() - 1
    bands = tuple(parts_of(plain.rows, uniform_rows))
    made = replace(plain, tile=tile, uniform_rows=uniform_rows, bands=bands)
    is_aligned = len(bands) == 1 or uniform_rows * depth * 4 % target.uniform_alignment == 0
    return made if is_aligned and made.count <= UNIFORM_LAUNCHES_MAX else None


def _sizes(weight: Operand, is_along: bool) -> tuple[int, int]:
    """(columns, depth)."""
    columns, depth = weight.shape if is_along else weight.shape[::-1]
    return int(columns), int(depth)


def _is_plain(x: Operand | Scratch, weight: Operand | Weight) -> bool:
    """Whether x is f32, and only the weight, a matrix of floats, is a constant."""
    return (
        isinstance(x, Operand)
        and isinstance(weight, Operand)
        and isinstance(weight.buffer, Weight)
        and not isinstance(x.buffer, Weight)
        and weight.rank == 2
        and x.storage is Storage.F32
        and weight.dtype.is_float
    )
