"""Tiles of products with weights of few bits for many rows, and which of them suits a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pteron.ops import Target


@dataclass(frozen=True, slots=True)
class Tile:
    """What a workgroup computes at once: `down` by `across` invocations, `tall` by `wide` outputs each."""

    tall: int  # multiples of four
    wide: int
    down: int
    across: int
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
        lanes_down = min(4, self.down)
        return {
            "TALL": self.tall,
            "WIDE": self.wide,
            "DOWN": self.down,
            "ACROSS": self.across,
            "LANES_DOWN": lanes_down,
        }

    def count(self, rows: int, columns: int) -> int:
        """Tiles of one part of a product."""
        return -(-rows // self.height) * -(-columns // self.width)


# By height, each with the widest first.
FLOAT_TILES = (
    Tile(4, 4, 2, 32),
    Tile(4, 8, 4, 16),
    Tile(4, 4, 4, 16),
    Tile(4, 8, 8, 16),
    Tile(4, 4, 8, 16),
    Tile(8, 8, 8, 16),
    Tile(8, 4, 8, 16),
    Tile(8, 8, 16, 16),
    Tile(8, 8, 16, 8),
    Tile(16, 8, 16, 16),
)
# Two buffers of int8, and a row's zero point.
INT8_TILES = (
    Tile(4, 4, 4, 32, 32, 4),
    Tile(4, 4, 4, 16, 32, 4),
    Tile(8, 4, 4, 32, 32, 4),
    Tile(8, 4, 8, 32, 32, 4),
    Tile(8, 4, 8, 16, 32, 4),
    Tile(16, 4, 8, 32, 32, 4),
    Tile(16, 4, 8, 16, 32, 4),
)
WORKGROUPS_WANTED = 256  # two for each multiprocessor of a large device
PARTS_MAX = 8
PART_STEPS_MIN = 8
PART_STEPS_MAX = 2048  # that one sum goes through: for its error, and where an adapter ends long loops


def choose(tiles: Sequence[Tile], target: Target, rows: int, columns: int, depth: int) -> tuple[Tile, int]:
    """(tile, parts of k): the tile that wastes few rows and fills the device, and how often k is split."""
    fitting = [tile for tile in tiles if tile.workgroup_bytes <= target.workgroup_bytes_max]
    height = min((tile.height for tile in fitting if tile.height >= rows), default=128)
    tile = next(tile for tile in fitting if tile.height == height)
    parts = -(-depth // (PART_STEPS_MAX * tile.step)) or 1
    while (
        parts < PARTS_MAX
        and parts * tile.count(rows, columns) < WORKGROUPS_WANTED
        and depth >= 2 * parts * PART_STEPS_MIN * tile.step
    ):
        parts *= 2
    return tile, parts
