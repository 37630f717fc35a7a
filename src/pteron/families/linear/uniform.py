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

ARRAYS = "abcdefgh"  # of one launch
WORKGROUP = 8  # invocations; as ARRAYS, a constant of the kernel
TILES = (8, 4, 1)  # rows of an invocation; the largest that fits is used
ROOM_MIN = 64  # vec4s of an array: rooms are powers of two, so that few kernels are compiled
PRODUCTS_MIN = 1 << 13  # with fewer, uploading arrays costs more than it saves
UNIFORM_ROWS_MIN = 1 << 21  # products from which rows, too, are uniform arrays
UNIFORM_LAUNCHES_MAX = 128  # with rows as uniform arrays: with more, planning costs more than it saves
LAUNCHES_MAX = 2048  # with weights alone: a launch of full arrays computes 131,072 products or more


@dataclass(frozen=True, slots=True)
class Cut:
    """A launch takes eight arrays of weights, each with `blocks` blocks of four columns and `span` k, and
    `uniform_rows` rows of x from a uniform array, or all of them from a storage buffer if that is 0."""

    rows: AnyInt
    columns: int
    depth: int
    is_along: bool  # k runs along rows of the weights
    tile: int
    blocks: int
    parts: int
    span: int
    uniform_rows: int = 0
    bands: tuple[tuple[int, AnyInt], ...] = ((0, 1),)  # first rows, and whether there are any (`parts_of`)

    @property
    def width(self) -> int:
        """Columns of a launch."""
        return 4 * self.blocks * len(ARRAYS)

    @property
    def room(self) -> int:
        """Vec4s of an array."""
        return max(ROOM_MIN, 1 << (self.blocks * self.span - 1).bit_length())

    @property
    def count(self) -> int:
        return self.parts * -(-self.columns // self.width) * len(self.bands)

    @property
    def overrides(self) -> dict[str, Any]:
        rows = {"ROWS": self.uniform_rows, "A_ROOM": self.uniform_rows * self.span // 4}
        return {"TILE": self.tile, "ROOM": self.room, **(rows if self.uniform_rows else {})}

    def launches(self, x: Operand, weight: Operand) -> Iterator[dict[str, Any]]:
        """What each launch binds, its parameters and grid."""
        tiles = -(-(self.rows if len(self.bands) == 1 else self.uniform_rows) // self.tile)
        for part, first in product(range(self.parts), range(0, self.columns, self.width)):
            arrays = {
                f"b_{name}": weight.packed(
                    *("columns of a uniform array", first + 4 * index * self.blocks, self.blocks),
                    *(part * self.span, self.span, int(self.is_along), self.room),
                    count=4 * self.room,
                    storage=Storage.F32,
                )
                for index, name in enumerate(ARRAYS)
            }
            for first_row, is_there in self.bands:
                rows = {"a_rows": OperandSlice(x, first_row * self.depth)} if self.uniform_rows else {"a": x}
                yield {
                    **rows,
                    **arrays,
                    "first": first,
                    "columns": min(self.width, self.columns - first),
                    "first_row": first_row,
                    "part": part,
                    "blocks": self.blocks,
                    "threads": -(-4 * self.blocks // WORKGROUP) * WORKGROUP * tiles * is_there,
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
) -> Cut | None:
    """How to split a product for a software adapter; None if matmul_uniform cannot run, or is not faster."""
    if not (target.is_cpu and target.broadcasts and _is_plain(x, weight)):
        return None
    assert isinstance(x, Operand)
    columns, depth = map(int, weight.shape if is_along else weight.shape[::-1])
    if rows * columns * depth < PRODUCTS_MIN:
        return None
    quads = 1 << (target.uniform_bytes_max // 16).bit_length() - 1
    parts = -(-depth // quads)
    span = -(-depth // (4 * parts)) * 4
    blocks = -(-columns // 4)
    launches = -(-blocks // (len(ARRAYS) * (quads // span)))
    blocks = -(-blocks // (len(ARRAYS) * launches))
    tile = next(tile for tile in TILES if tile <= rows)
    cut = Cut(rows, columns, depth, is_along, tile, blocks, parts, span)
    return (x.has_slack and _with_uniform_rows(cut, target)) or (cut if cut.count <= LAUNCHES_MAX else None)


def _with_uniform_rows(cut: Cut, target: Target) -> Cut | None:
    """The same with rows from uniform arrays, as many as fit; None if they do not suit."""
    rows = bucket(cut.rows) if isinstance(cut.rows, LiveInt) else cut.rows
    fitting = min(rows, target.uniform_bytes_max // (4 * cut.depth))
    is_large = cut.rows * cut.columns * cut.depth >= UNIFORM_ROWS_MIN
    if cut.span != cut.depth or fitting == 0 or not is_large:
        return None
    tile = next(tile for tile in TILES if tile <= fitting)
    uniform_rows = tile << (fitting // tile).bit_length() - 1
    bands = tuple(parts_of(cut.rows, uniform_rows))
    made = replace(cut, tile=tile, uniform_rows=uniform_rows, bands=bands)
    is_aligned = len(bands) == 1 or uniform_rows * cut.depth * 4 % target.uniform_alignment == 0
    return made if is_aligned and made.count <= UNIFORM_LAUNCHES_MAX else None


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
