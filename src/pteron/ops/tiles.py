"""Products by tiles: the shapes of tiles of floats (wgsl/lib/tile_lanes.wgsl) or of matrices
(wgsl/lib/matrix_tile.wgsl), and the choice of one for a product by a model of its time.

A workgroup computes a tile. The model follows the processor that gets the most tiles, n of them:

    time = start + (n + idle · waves) · (time of a tile at the full rate)

A processor runs `resident` tiles at once, so n tiles are n / resident waves. In each wave it waits, for
memory and at barriers, as long as `idle` tiles would take. Rate, idle, resident and start of every tile are
fitted to times on an H200, measured inside a model's layers after other kernels: fetching instructions is
most of `start` (docs/notes/matrix-cores.md)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pteron.dtypes import Storage
from pteron.ops.live import AnyInt, typical
from pteron.ops.operand import Operand, Weight
from pteron.ops.target import Target

# Measured on an H200, as are the rates of tiles.
PROCESSORS = 132
MERGE_START = 2.5  # microseconds for another launch
MERGE_RATE = 4e6  # bytes per microsecond
PARTS_MAX = 32
TILES_MAX = 8 * PROCESSORS  # with more tiles than this, k is not split into parts
PART_DEPTH_MIN = 64
PART_DEPTH_MAX = 1 << 15  # of one sum: bounds its error, and loops where an adapter ends long ones


class TimedTile(ABC):
    """What a workgroup computes at once, and how long that takes."""

    rate: float  # TFLOP/s of all processors, with many tiles for each
    idle: float  # waiting time of a wave, in units of one tile's time at the full rate
    resident: int  # tiles that a processor runs at once
    start: float  # microseconds of a launch before the first result

    __slots__ = ()

    @property
    @abstractmethod
    def height(self) -> int:
        """Rows of outputs."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns of outputs."""

    def count(self, rows: AnyInt, columns: AnyInt, matrices: int = 0) -> AnyInt:
        """Tiles of one part; the maximum of them if rows are grouped by their matrices."""
        bands = rows // self.height + matrices if matrices else -(-rows // self.height)
        return bands * -(-columns // self.width)

    def microseconds(
        self, rows: int, columns: int, depth: int, parts: int, is_gated: bool, batch: int = 1
    ) -> float:
        """Estimated time of a batch of products whose k is split into parts, with their merge."""
        per_processor = -(-batch * parts * int(self.count(rows, columns)) // PROCESSORS)
        tile = 2e-6 * PROCESSORS * self.height * self.width * depth / parts / self.rate
        waves = per_processor / self.resident
        if waves <= 3:  # later waves begin at different times: one computes while another waits
            waves = math.ceil(waves)
        time = self.start + (per_processor + self.idle * waves) * tile
        if parts == 1:
            return time
        merged_bytes = 4 * batch * rows * columns * (parts + (0.5 if is_gated else 1))
        return time + MERGE_START + merged_bytes / MERGE_RATE


@dataclass(frozen=True, slots=True)
class Tile(TimedTile):
    """`down` by `across` invocations, `tall` by `wide` outputs each."""

    tall: int  # a multiple of four
    wide: int  # 4 or 8
    down: int
    across: int
    step: int = 16  # values of k that are in workgroup memory at a time
    rate: float = 1.0
    idle: float = 0.0
    resident: int = 1
    start: float = 0.0
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


@dataclass(frozen=True, slots=True)
class MatrixTile(TimedTile):
    """`down` by `across` subgroups, `tall` by `wide` matrices of 16 by 16 sums each."""

    tall: int
    wide: int
    down: int
    across: int
    step: int  # values of k that are in workgroup memory at a time, a multiple of 16
    products: int  # of halves, for each product: 1, or 3 if both factors are in two halves
    rate: float
    idle: float
    resident: int
    start: float
    planes: tuple[int, int] = (2, 2)  # halves of a number of x, and of the other factor
    is_along: bool = True  # whether the other factor is stored along k
    bytes_of_half: int = 2  # 4 if matrix cores are emulated
    is_low_apart: bool = True  # products with low halves have sums of their own, if registers allow it

    @property
    def height(self) -> int:
        return 16 * self.tall * self.down

    @property
    def width(self) -> int:
        return 16 * self.wide * self.across

    @property
    def workgroup_bytes(self) -> int:
        """Factors, and at the end the sums of a strip of every subgroup. Then words for rows and columns."""
        halves = self.planes[0] * self.height * self._pitch + self.planes[1] * self._plane
        strip = self._sum_planes * -(-self.wide // self._sum_planes)  # matrices
        sums = 512 * self.down * self.across * strip
        return self.bytes_of_half * (max(halves, sums) + 2 * self._word_count)

    @property
    def declarations(self) -> dict[str, Any]:
        """The constants of lib/matrix_tile.wgsl and lib/matrix_cores.wgsl."""
        limits = {} if self._sum_planes == 2 else {"LOW_SCALE": "1.0"}
        if self.products == 3 and self._sum_planes == 1:  # low halves as they are lose bits earlier
            limits["SMALLEST"] = "0.0078125"
        return {
            **limits,
            "TALL": self.tall,
            "WIDE": self.wide,
            "DOWN": self.down,
            "ACROSS": self.across,
            "STEP": self.step,
            "X_PLANES": self.planes[0],
            "W_PLANES": self.planes[1],
            "W_PLANE": self._plane,
            "SUM_PLANES": self._sum_planes,
            "IS_ALONG": self.is_along,
            "K_PITCH": self._pitch,
            "N_PITCH": self.width + 8,
            "MEMORY_BYTES": 2 * self.workgroup_bytes // self.bytes_of_half,
            "WORD_COUNT": self._word_count,
            **({"IS_EMULATED": True} if self.bytes_of_half == 4 else {}),
        }

    @property
    def _pitch(self) -> int:
        return self.step + 8

    @property
    def _sum_planes(self) -> int:
        return 2 if self.is_low_apart and self.products == 3 else 1

    @property
    def _word_count(self) -> int:
        return self.height + self.width + 4

    @property
    def _plane(self) -> int:
        """Halves of a plane of the other factor."""
        return self.width * self._pitch if self.is_along else self.step * (self.width + 8)


def planes_of(target: Target, factor: Storage) -> int:
    """In how many halves matrices multiply the numbers of a factor: f16 is one half, and so is f32 if the
    user accepts it."""
    return 1 if factor is Storage.F16 or target.products == "f16" else 2


def factor_declarations(x: Operand, weight: Operand | Weight) -> dict[str, Any]:
    """Declarations of lib/matrix_tile.wgsl for activations and weights: whether halves may not hold some of
    them, and what weights are multiplied by, if they are constants."""
    is_constant = isinstance(weight, Weight) or isinstance(weight.buffer, Weight)
    are_halves = x.storage is weight.storage is Storage.F16
    return {
        "IS_CHECKED": not are_halves,
        "SCALE": "1024.0" if is_constant and weight.storage is Storage.F32 else "1.0",
    }


@lru_cache(64)
def matrix_tiles(
    tiles: tuple[MatrixTile, ...], target: Target, planes: tuple[int, int], *, is_along: bool = True
) -> tuple[MatrixTile, ...]:
    """Those of the tiles that a device can use for numbers in one half or two: of x, and of the other
    factor."""
    if not target.has_matrices:
        return ()
    products = 1 if planes == (1, 1) else 3
    made = (
        replace(tile, planes=planes, is_along=is_along, bytes_of_half=target.bytes_of_half)
        for tile in tiles
        if tile.products == products
    )
    return tuple(
        tile
        for tile in made
        if tile.workgroup_bytes <= target.workgroup_bytes_max
        and 32 * tile.down * tile.across <= target.invocations_max
    )


def choose(
    tiles: tuple[Tile | MatrixTile, ...],
    target: Target,
    rows: AnyInt,
    columns: AnyInt,
    depth: AnyInt,
    group: int,
    is_gated: bool = False,
    batch: AnyInt = 1,
) -> tuple[Tile | MatrixTile, int]:
    """(tile, parts of k) with the least estimated time. Tiles of floats that would be half empty are left
    out, and tiles of matrices that would be more than half empty. `group` is the number of k that share a
    scale. Live sizes share the choice of their bucket's middle."""
    rows, columns, depth, batch = map(typical, (rows, columns, depth, batch))
    return _choose(tiles, target, rows, columns, depth, group, is_gated, batch)


@lru_cache(4096)  # layers repeat; live shapes do not end
def _choose(
    tiles: tuple[Tile | MatrixTile, ...],
    target: Target,
    rows: int,
    columns: int,
    depth: int,
    group: int,
    is_gated: bool,
    batch: int,
) -> tuple[Tile | MatrixTile, int]:
    least = -(-depth // PART_DEPTH_MAX) or 1
    most = max(least, min(PARTS_MAX, depth // PART_DEPTH_MIN))
    choices = [
        (tile, parts)
        for tile in tiles
        if tile.workgroup_bytes <= target.workgroup_bytes_max
        if tile.height < 2 * max(rows, 8) or (isinstance(tile, MatrixTile) and tile.height == 2 * rows)
        if isinstance(tile, MatrixTile) or not tile.is_int8 or group % tile.step == 0
        for parts in (least << doublings for doublings in range(PARTS_MAX.bit_length()))
        if parts == least or (parts <= most and batch * parts * tile.count(rows, columns) <= TILES_MAX)
    ]
    return min(
        choices, key=lambda choice: choice[0].microseconds(rows, columns, depth, choice[1], is_gated, batch)
    )
