"""Products of floats with 4-bit weights for some rows (q4_rows.wgsl): which the kernel takes, and in which
layout.

A tile has a place in workgroup memory for weights, which pays where many rows read them there. Here every
weight is unpacked into registers and meets all rows at once. Layouts are those an H200 was quickest with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.families.quantized.packing import Words
from pteron.families.quantized.tiles import PART_DEPTH_MAX, PARTS_MAX
from pteron.ops import Target

ROWS_MAX = 32  # with more, tiles are quicker
LANES = 8  # neighbours that add up what they have of a quad of columns
ACROSS = 16  # quads of columns of a workgroup
WORKGROUPS = 256  # that k is split into parts for: two for each processor of an H200
_LOADS = {1: "words_one", 2: "words_two", 4: "words_four"}  # libraries, by words of a load


@dataclass(frozen=True, slots=True)
class Strip:
    """What a workgroup computes at once: `tall` rows of 64 columns."""

    tall: int  # a multiple of LANES
    load: int  # words that an invocation takes of a column at a time

    @property
    def step_words(self) -> int:
        """Words of every column that pass by at a time."""
        return LANES * self.load

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory that it takes: two steps of each row, of floats."""
        return 2 * self.tall * self.step_words * 32

    @property
    def declarations(self) -> dict[str, Any]:
        return {"TALL": self.tall, "LANES": LANES, "ACROSS": ACROSS, "use_words_four": _LOADS[self.load]}

    def count(self, rows: int, columns: int) -> int:
        """Workgroups of one part of a product."""
        return -(-rows // self.tall) * -(-columns // (4 * ACROSS))


def choose(target: Target, rows: int, packed: Words) -> tuple[Strip, int] | None:
    """(strip, parts of k) for so many rows, where the kernel takes such weights on such a device."""
    can_share = (
        not target.is_cpu and target.subgroup_size >= LANES and target.invocations_max >= LANES * ACROSS
    )
    if not can_share or not 0 < rows <= ROWS_MAX or packed.library != "words":
        return None
    tall = -(-rows // LANES) * LANES
    # Few rows ask for long loads, which keep memory busy; many take the registers that these would.
    wanted = 4 if tall <= 8 else 2 if tall <= 16 else 1
    load = next(load for load in (4, 2, 1) if load <= wanted and packed.group % load == 0)
    strip = Strip(tall, load)
    if strip.workgroup_bytes > target.workgroup_bytes_max:
        return None
    words = -(-packed.depth // 8)
    steps = -(-words // strip.step_words)
    parts = -(-8 * words // PART_DEPTH_MAX)
    while parts < min(PARTS_MAX, steps) and parts * strip.count(rows, packed.columns) < WORKGROUPS:
        parts *= 2
    return strip, min(parts, steps)
