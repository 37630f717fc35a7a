"""Products by tiles (wgsl/lib/tile_lanes.wgsl): the shapes of tiles, and the choice of one for a product.

Rates were measured on an H200 inside a model's layers, after other kernels: fetching instructions is most of
a tile's `start`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from pteron.ops.target import Target

# Measured on an H200, as are the rates of tiles.
PROCESSORS = 132
MERGE_START = 2.5  # microseconds for another launch
MERGE_RATE = 4e6  # bytes per microsecond
PARTS_MAX = 32
TILES_MAX = 8 * PROCESSORS  # with more tiles than this, k is not split into parts
PART_DEPTH_MIN = 64
PART_DEPTH_MAX = 1 << 15  # of one sum: bounds its error, and loops where an adapter ends long ones


@dataclass(frozen=True, slots=True)
class Tile:
    """What a workgroup computes at once: `down` by `across` invocations, `tall` by `wide` outputs each."""

    tall: int  # a multiple of four
    wide: int  # 4 or 8
    down: int
    across: int
    step: int = 16  # values of k that are in workgroup memory at a time
    rate: float = 1.0  # TFLOP/s with many tiles per processor
    idle: float = 0.0  # tiles that a processor could compute in the time that it waits per turn
    together: int = 1  # tiles that a processor runs at once
    start: float = 0.0  # microseconds of overhead
    is_int8: bool = False  # int8 in two buffers, with an offset per column for zero points; or floats

    @property
    def height(self) -> int:
        return self.tall * self.down

    @property
    def width(self) -> int:
        return self.wide * self.across

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory: a step of each row and column, with padding of four rows and columns."""
        per_row = self.step * (2 if self.is_int8 else 4)
        lanes = -(-self.down * self.across // self.width)  # that share a column's offset
        offsets = 4 * lanes * self.width if self.is_int8 else 0
        return per_row * (self.height + 4 + self.width + 4) + offsets

    @property
    def declarations(self) -> dict[str, Any]:
        """The constants of lib/tile_lanes.wgsl, and the kernel's step."""
        return {
            "TALL": self.tall,
            "WIDE": self.wide,
            "DOWN": self.down,
            "ACROSS": self.across,
            "LANES_DOWN": min(4, self.down),
            "STEP": self.step,
        }

    def count(self, rows: int, columns: int, matrices: int = 0) -> int:
        """Tiles of one part; the maximum of them if rows are grouped by their matrices."""
        bands = rows // self.height + matrices if matrices else -(-rows // self.height)
        return bands * -(-columns // self.width)

    def microseconds(
        self, rows: int, columns: int, depth: int, parts: int, is_gated: bool, batch: int = 1
    ) -> float:
        """Estimated time of a batch of products whose k is split into parts, with their merge."""
        per_processor = -(-batch * parts * self.count(rows, columns) // PROCESSORS)
        tile = 2e-6 * PROCESSORS * self.height * self.width * depth / parts / self.rate
        turns = per_processor / self.together
        if turns <= 3:  # later turns begin at different times: one computes while another waits
            turns = math.ceil(turns)
        time = self.start + (per_processor + self.idle * turns) * tile
        if parts == 1:
            return time
        merged_bytes = 4 * batch * rows * columns * (parts + (0.5 if is_gated else 1))
        return time + MERGE_START + merged_bytes / MERGE_RATE


@cache
def choose(
    tiles: tuple[Tile, ...],
    target: Target,
    rows: int,
    columns: int,
    depth: int,
    group: int,
    is_gated: bool = False,
    batch: int = 1,
) -> tuple[Tile, int]:
    """(tile, parts of k) with the least estimated time, without tiles that are half empty. `group` is the
    number of k that share a scale."""
    least = -(-depth // PART_DEPTH_MAX) or 1
    most = max(least, min(PARTS_MAX, depth // PART_DEPTH_MIN))
    choices = [
        (tile, parts)
        for tile in tiles
        if tile.workgroup_bytes <= target.workgroup_bytes_max and tile.height < 2 * max(rows, 8)
        if not tile.is_int8 or group % tile.step == 0
        for parts in (least << doublings for doublings in range(PARTS_MAX.bit_length()))
        if parts == least or (parts <= most and batch * parts * tile.count(rows, columns) <= TILES_MAX)
    ]
    return min(
        choices, key=lambda choice: choice[0].microseconds(rows, columns, depth, choice[1], is_gated, batch)
    )
