"""Strips, for products of 5 to 32 rows of floats with 4-bit weights (q4_rows.wgsl), and the choice of one.

Tiles (ops/tile_table.py) keep weights in workgroup memory, which pays off if many rows read them. Strips
unpack every weight into registers and multiply it with all rows at once. Where a device has matrix cores,
these replace strips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.families.quantized.packing import PackedWeights
from pteron.ops import AnyInt, Target
from pteron.ops.tiles import PART_DEPTH_MAX, PARTS_MAX

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
    """(strip, parts of k) for `rows` rows, or None if q4_rows cannot run for these weights on this GPU."""
    if target.subgroup_size < LANES or not 0 < rows <= STRIP_ROWS_MAX or packed.bits != 4:
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
