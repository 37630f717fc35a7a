"""Layouts of products with 4-bit or 8-bit weights for many rows: tiles (ops/tiles.py), or strips for 5 to 32
rows of floats (q4_rows.wgsl), and the choice of a strip.

Tiles keep weights in workgroup memory, which pays off if many rows read them. Strips unpack every weight into
registers and multiply it with all rows at once. Where a device has matrix cores, these replace strips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.families.quantized.packing import PackedWeights
from pteron.ops import AnyInt, Target
from pteron.ops.tiles import PART_DEPTH_MAX, PARTS_MAX, MatrixTile, Tile

# Measured on an H200 in a rotation of a model's kernels (docs/notes/prefill-tiles.md).
FLOAT_TILES = (  # tall, wide, down, across, step; rate, idle, resident, start
    Tile(4, 4, 2, 32, 16, 24.7, 3.82, 4, 6.8),
    Tile(4, 4, 4, 16, 16, 43.2, 5.21, 6, 6.8),
    Tile(4, 8, 8, 16, 16, 62.0, 2.31, 2, 8.6),
    Tile(8, 4, 8, 16, 16, 49.9, 1.30, 4, 8.9),
    Tile(8, 8, 16, 8, 16, 62.0, 0.96, 3, 15.2),
    Tile(8, 8, 16, 16, 16, 54.7, 0.32, 2, 13.3),
)
# Of rows grouped by several matrices, where a smaller part of a lower tile is empty. Chosen on an H200
# (docs/notes/experts.md); its rates are those of the tile of 128 rows with as many outputs.
GROUPED_TILE = Tile(8, 8, 8, 16, 16, 62.0, 0.96, 3, 15.2)
INT8_TILES = (
    Tile(4, 4, 2, 32, 32, 60.4, 3.24, 4, 7.5, True),
    Tile(4, 4, 4, 16, 32, 110.0, 5.07, 6, 6.2, True),
    Tile(8, 4, 4, 32, 32, 110.0, 1.15, 2, 8.1, True),
    Tile(8, 4, 8, 16, 32, 101.5, 0.53, 3, 9.0, True),
    Tile(16, 4, 8, 16, 32, 106.3, 0.38, 2, 13.2, True),
)
# For matrix cores, measured in the layers of Llama-3.2-1B on an H200 (docs/notes/matrix-cores.md). Products
# with low halves have no sums of their own: their error would be a third, their time a fifth more.
MATRIX_TILES = (  # tall, wide, down, across, step, products; rate, idle, resident, start
    MatrixTile(1, 1, 1, 4, 64, 1, 90.0, 2.36, 4, 2.7),
    MatrixTile(1, 2, 2, 2, 64, 1, 171.4, 1.53, 2, 4.5),
    MatrixTile(1, 2, 2, 4, 64, 1, 122.9, 0.22, 1, 5.4),
    MatrixTile(2, 2, 2, 2, 64, 1, 323.0, 3.14, 2, 4.2),
    MatrixTile(2, 2, 4, 4, 64, 1, 195.0, 0.0, 1, 4.7),
    MatrixTile(1, 2, 2, 4, 64, 3, 51.0, 0.0, 1, 3.6, is_low_apart=False),
    MatrixTile(1, 2, 4, 2, 64, 3, 62.0, 0.0, 1, 4.5, is_low_apart=False),
    MatrixTile(2, 4, 4, 2, 32, 3, 94.0, 0.0, 1, 6.0, is_low_apart=False),
)
MATRIX_ROWS_MIN = {1: 9, 3: 17}  # by products of halves; with fewer rows, strips are faster

LANES = 8  # of a subgroup: they share a quad of columns and add up their sums
STRIP_WORKGROUPS = 256  # k is split into parts to reach this number: two per processor of an H200


@dataclass(frozen=True, slots=True)
class Strip:
    """What a workgroup computes at once: `tall` rows of `across` quads of columns."""

    tall: int  # a multiple of LANES
    load: int  # words of a column that an invocation loads at a time
    across: int = 16

    @property
    def step_words(self) -> int:
        """Words of every column per step."""
        return LANES * self.load

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory: two steps of each row, in floats, and an eighth for padding."""
        return 2 * self.tall * self.step_words * 32 * (LANES + 1) // LANES

    @property
    def declarations(self) -> dict[str, Any]:
        loads = {"IN_FOURS": self.load == 4, "IN_TWOS": self.load == 2}
        return {"TALL": self.tall, "LANES": LANES, "ACROSS": self.across, **loads}

    def count(self, rows: AnyInt, columns: int) -> AnyInt:
        """Workgroups of one part of a product."""
        return -(-rows // self.tall) * -(-columns // (4 * self.across))


# Few rows use long loads, which keep memory busy. More rows use shorter ones: steps are unrolled, so the code
# grows with both, and all kernels of a model share the instruction cache.
STRIPS = (Strip(8, 4), Strip(16, 2), Strip(24, 1), Strip(32, 1))
STRIP_ROWS_MAX = STRIPS[-1].tall  # with more rows, tiles are faster


def choose_strip(target: Target, rows: AnyInt, packed: PackedWeights) -> tuple[Strip, int] | None:
    """(strip, parts of k) for `rows` rows, or None if q4_rows cannot run for these weights on this device."""
    if target.is_cpu or target.subgroup_size < LANES or not 0 < rows <= STRIP_ROWS_MAX or packed.bits != 4:
        return None
    strip = next(strip for strip in STRIPS if rows <= strip.tall)
    while packed.group % strip.load or packed.pitch % strip.load:  # a load crosses neither groups nor rows
        strip = replace(strip, load=strip.load // 2)
    is_small = strip.workgroup_bytes <= target.workgroup_bytes_max
    if not is_small or LANES * strip.across > target.invocations_max:
        return None
    words = -(-packed.depth // 8)
    steps = -(-words // strip.step_words)
    parts = -(-8 * words // PART_DEPTH_MAX)
    while parts < min(PARTS_MAX, steps) and parts * strip.count(rows, packed.columns) < STRIP_WORKGROUPS:
        parts *= 2
    return strip, min(parts, steps)
