"""Products of floats with 4-bit weights for some rows (q4_rows.wgsl): which the kernel takes, and in which
layout.

A tile has a place in workgroup memory for weights, which pays where many rows read them there. Here every
weight is unpacked into registers and meets all rows at once. Layouts are those an H200 was quickest with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.families.quantized.packing import Words
from pteron.families.quantized.tiles import PART_DEPTH_MAX, PARTS_MAX
from pteron.ops import Target

LANES = 8  # neighbours that add up what they have of a quad of columns
WORKGROUPS = 256  # that k is split into parts for: two for each processor of an H200
_LOADS = {1: "words_one", 2: "words_two", 4: "words_four"}  # libraries, by words of a load


@dataclass(frozen=True, slots=True)
class Strip:
    """What a workgroup computes at once: `tall` rows of `across` quads of columns."""

    tall: int  # a multiple of LANES
    load: int  # words that an invocation takes of a column at a time
    across: int = 16

    @property
    def step_words(self) -> int:
        """Words of every column that pass by at a time."""
        return LANES * self.load

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory that it takes: two steps of each row, of floats, and an eighth for padding."""
        return 2 * self.tall * self.step_words * 32 * (LANES + 1) // LANES

    @property
    def declarations(self) -> dict[str, Any]:
        library = _LOADS[self.load]
        return {"TALL": self.tall, "LANES": LANES, "ACROSS": self.across, "use_words_four": library}

    def count(self, rows: int, columns: int) -> int:
        """Workgroups of one part of a product."""
        return -(-rows // self.tall) * -(-columns // (4 * self.across))


# Few rows ask for long loads, which keep memory busy. More rows take shorter ones: a step is written out, so
# code grows with both, and the kernels of a model share a processor's cache of instructions.
STRIPS = (Strip(8, 4), Strip(16, 2), Strip(24, 1), Strip(32, 1))
ROWS_MAX = STRIPS[-1].tall  # with more, tiles are quicker


def choose(target: Target, rows: int, packed: Words) -> tuple[Strip, int] | None:
    """(strip, parts of k) for so many rows, where the kernel takes such weights on such a device."""
    if target.is_cpu or target.subgroup_size < LANES or not 0 < rows <= ROWS_MAX or packed.library != "words":
        return None
    strip = next(strip for strip in STRIPS if rows <= strip.tall)
    while packed.group % strip.load:
        strip = replace(strip, load=strip.load // 2)
    is_small = strip.workgroup_bytes <= target.workgroup_bytes_max
    if not is_small or LANES * strip.across > target.invocations_max:
        return None
    words = -(-packed.depth // 8)
    steps = -(-words // strip.step_words)
    parts = -(-8 * words // PART_DEPTH_MAX)
    while parts < min(PARTS_MAX, steps) and parts * strip.count(rows, packed.columns) < WORKGROUPS:
        parts *= 2
    return strip, min(parts, steps)
