"""Tiles of products with weights of few bits for many rows, and which of them suits a product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pteron.ops import Target

# Fitted to an H200, as are the rates of tiles.
WORKGROUPS_BUSY = 128  # that a device needs to be busy: about one for each multiprocessor
INVOCATIONS_BUSY = 1 << 14
MERGE_START = 2.0  # microseconds for another dispatch
MERGE_RATE = 3e6  # bytes per microsecond
PARTS_MAX = 32
PART_STEPS_MIN = 4
PART_STEPS_MAX = 2048  # that one sum goes through: for its error, and where an adapter ends long loops


@dataclass(frozen=True, slots=True)
class Tile:
    """What a workgroup computes at once: `down` by `across` invocations, `tall` by `wide` outputs each."""

    tall: int  # multiples of four
    wide: int
    down: int
    across: int
    rate: float = 1.0  # of a busy device, in TFLOP/s
    step: int = 16  # columns k that pass through workgroup memory at a time
    row_bytes: int = 0  # that every row has there besides

    @property
    def height(self) -> int:
        return self.tall * self.down

    @property
    def width(self) -> int:
        return self.wide * self.across

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory that it takes: 64 bytes of each row and column, of four more for padding."""
        return 64 * (self.height + 4 + self.width + 4) + self.row_bytes * self.height

    @property
    def declarations(self) -> dict[str, Any]:
        """The constants of lib/tile.wgsl."""
        return {
            "TALL": self.tall,
            "WIDE": self.wide,
            "DOWN": self.down,
            "ACROSS": self.across,
            "LANES_DOWN": min(4, self.down),
        }

    @property
    def has_gates(self) -> bool:
        """Whether an invocation has columns of both halves of a product, one of which gates the other."""
        return self.wide % 8 == 0

    def count(self, rows: int, columns: int) -> int:
        """Tiles of one part of a product."""
        return -(-rows // self.height) * -(-columns // self.width)

    def is_whole(self, parts: int, is_gated: bool) -> bool:
        """Whether no other launch has to finish what so many parts leave."""
        return parts == 1 and (self.has_gates or not is_gated)

    def microseconds(self, rows: int, columns: int, depth: int, parts: int, is_gated: bool) -> float:
        """About how long a product takes whose k is split into parts, which are then merged."""
        tiles = self.count(rows, columns)
        groups = parts * tiles
        busy = min(1.0, groups / WORKGROUPS_BUSY, groups * self.down * self.across / INVOCATIONS_BUSY)
        time = 2 * tiles * self.height * self.width * depth / (self.rate * 1e6 * busy)
        merged_bytes = 4 * rows * columns * (parts + 1)
        return time if self.is_whole(parts, is_gated) else time + MERGE_START + merged_bytes / MERGE_RATE


FLOAT_TILES = (
    Tile(4, 4, 2, 32, 6.4),
    Tile(4, 4, 4, 16, 11),
    Tile(4, 8, 8, 16, 15.5),
    Tile(8, 4, 8, 16, 21.5),
    Tile(8, 8, 16, 8, 31),
    Tile(8, 8, 16, 16, 32),
    Tile(16, 8, 16, 16, 34),
    Tile(16, 8, 8, 32, 34),
)
# Steps of int8 in two buffers, and a row's zero point.
INT8_TILES = (
    Tile(4, 4, 2, 32, 13, 32, 4),
    Tile(4, 4, 4, 16, 22, 32, 4),
    Tile(8, 4, 4, 32, 32, 32, 4),
    Tile(8, 4, 8, 16, 57, 32, 4),
    Tile(16, 4, 8, 16, 54, 32, 4),
    Tile(16, 4, 8, 32, 44, 32, 4),
    Tile(8, 8, 16, 8, 54, 32, 4),
    Tile(8, 8, 16, 16, 54, 32, 4),
)


@cache
def choose(
    tiles: tuple[Tile, ...], target: Target, rows: int, columns: int, depth: int, is_gated: bool = False
) -> tuple[Tile, int]:
    """(tile, parts of k) by which a product should take the least time, with no tile that is half empty."""
    least = -(-depth // (PART_STEPS_MAX * tiles[0].step)) or 1
    most = max(least, min(PARTS_MAX, depth // (PART_STEPS_MIN * tiles[0].step)))
    choices = [
        (tile, parts)
        for tile in tiles
        if tile.workgroup_bytes <= target.workgroup_bytes_max and tile.height < 2 * max(rows, 8)
        for parts in (least << doublings for doublings in range(PARTS_MAX.bit_length()))
        if parts <= most
    ]
    return min(choices, key=lambda choice: choice[0].microseconds(rows, columns, depth, choice[1], is_gated))
