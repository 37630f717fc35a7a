"""Layouts of attention kernels: tiles for many queries, splits of the context for few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.ops import AnyInt, Target, bucket, most
from pteron.ops.tile_table import rows_of

DECODE_WIDTH_MAX = 256  # elements per head; wider heads need too many registers per lane
BUCKETS = (128, 512, 1024, 2048)  # of contexts; larger buckets double
SPLITS_MAX = 64  # per query: the merge reads them one by one
KEYS_WHOLE = 512  # up to this many, one split takes no longer than several and their merge
WORKGROUPS_ENOUGH = 256  # read a large device's memory at full speed: more splits only add to the merge
SCRATCH_BYTES = 1 << 25  # maximum of scratch memory between two kernels
# Vec4s of keys that a lane loads at once, of a single split and by bucket of several; larger ones: 16.
_LOADED_WHOLE, _LOADED = 8, {128: 2, 512: 8, 1024: 8}


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of attention_tiled.wgsl, queries by keys, and how many workgroups share a context."""

    rows: int
    keys: int
    by_subgroups: bool = False
    splits: AnyInt = 1

    kernel = "attention_tiled"

    @property
    def workgroup(self) -> int:
        return self.rows * self.keys // 16

    def declarations(self, width: int, value_width: int) -> dict[str, Any]:
        return {"ROWS": self.rows, "KEYS": self.keys, "BY_SUBGROUPS": self.by_subgroups}

    def halved(self) -> Tiles:
        return replace(self, rows=self.rows // 2)

    def on(self, target: Target, splits: AnyInt = 1) -> Tiles:
        """The same tiles, reduced by subgroups if they are wide enough."""
        return replace(self, by_subgroups=target.subgroup_size >= self.keys // 4, splits=splits)

    def bytes_needed(self, width: int, value_width: int | None = None) -> int:
        """Of workgroup memory: queries, keys or their shares, values."""
        values = self.keys * (value_width or width)
        return 4 * (self.rows * width + self.keys * max(width, self.rows) + values)


@dataclass(frozen=True, slots=True)
class MatrixTiles:
    """The tiles of attention_matrix.wgsl: `down` groups of `across` subgroups, `tall` strips of 16 rows each,
    by keys."""

    down: int
    across: int
    tall: int
    keys: int
    planes: int  # of halves: of queries and weights
    key_planes: int  # of keys and values
    width_min: int = 0  # of heads
    context_max: int | None = None  # with more keys, others are faster
    settled: int = 1024  # keys after which results leave the registers
    bytes_of_half: int = 2  # 4 if matrix cores are emulated
    splits: AnyInt = 1

    kernel = "attention_matrix"

    @property
    def rows(self) -> int:
        return 16 * self.down * self.tall

    @property
    def workgroup(self) -> int:
        return 32 * self.down * self.across

    def suits(self, width: int, value_width: int) -> bool:
        """Whether subgroups have equal shares of whole matrices."""
        return width % 16 == 0 == value_width % (16 * self.across) and width >= self.width_min

    def declarations(self, width: int, value_width: int) -> dict[str, Any]:
        share = value_width // 16 // self.across
        together = min(share, self.keys // 16 // self.across)
        return {
            "DOWN": self.down,
            "ACROSS": self.across,
            "TALL": self.tall,
            "KEYS": self.keys,
            "PLANES": self.planes,
            "KEY_PLANES": self.key_planes,
            "SETTLED": self.settled,
            "ROUND": next(count for count in range(together, 0, -1) if share % count == 0),
            "MEMORY_BYTES": 2 * self.bytes_needed(width, value_width) // self.bytes_of_half,
            "WORD_COUNT": self._words,
            "IS_EMULATED": self.bytes_of_half == 4,
        }

    def halved(self) -> MatrixTiles:
        return replace(self, down=self.down // 2)

    def on(self, target: Target, splits: AnyInt = 1) -> MatrixTiles:
        return replace(self, splits=splits)

    def bytes_needed(self, width: int, value_width: int) -> int:
        """Of workgroup memory: keys or values, weights; scores or results, as floats; words. Queries pass
        through the same memory before."""
        halves = self.key_planes * self.keys * (max(width, value_width) + 8)
        halves += (self.planes + 2) * self.rows * (self.keys + 8)
        return self.bytes_of_half * (max(halves, self.rows * (width + 8)) + 2 * self._words)

    @property
    def _words(self) -> int:
        return 4 if self.bytes_of_half == 2 else 4 + self.workgroup


# For matrix cores; the first that suits and fits is used. TFLOP/s on an H200 (docs/notes/matrix-cores.md).
_MATRIX_TILES = """
down  across  tall  keys  planes  key_planes  width_min  context_max
   2       4     1    64       1           1          -          256
   2       2     1    64       1           1          -          256
   4       2     1    32       1           1        160            -
   2       2     2    32       1           1          -            -
   4       1     1    32       1           1          -            -
   2       1     1    32       1           1          -            -
   4       2     1    32       2           1        160            -
   4       1     1    48       2           1         96            -
   2       2     2    64       2           1          -            -
   4       1     1    32       2           1          -            -
   2       1     1    32       2           1          -            -
   2       4     1    64       2           2          -          256
   4       2     1    32       2           2          -            -
   4       1     1    32       2           2          -            -
   2       1     1    16       2           2          -            -
"""
MATRIX_TILES = tuple(MatrixTiles(**row) for row in rows_of(_MATRIX_TILES))
TILES = (Tiles(64, 64), Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))


@dataclass(frozen=True, slots=True)
class Decode:
    """The layout of attention_decode.wgsl. There are as many splits as load all keys at once, or as keep the
    device busy. A single split needs no merge. A caller whose next launch merges splits anyway pays nothing
    for them: there, even a short context is split."""

    subgroup: int
    lanes: int  # that share a key
    workgroup: int
    unroll: int  # keys that a group of lanes loads at once
    splits: AnyInt

    @classmethod
    def of(
        cls, width: int, context: AnyInt, workgroups: AnyInt, target: Target, *, are_merged: bool = False
    ) -> Decode | None:
        """The layout for a bucket of contexts and as many workgroups without splits, or None if the device
        cannot run the kernel. `are_merged`: the next launch merges the splits."""
        subgroup, quads = target.subgroup_size, width // 4
        if subgroup < 4 or width > DECODE_WIDTH_MAX:
            return None
        keys = context_bucket(context)
        lanes = min(16, subgroup, _power_of_two(-(-quads // 2)))  # two vec4s of a head each
        bytes_needed = 4 * (16 * quads + 8)  # of each subgroup, in workgroup memory
        room = min(target.invocations_max, target.workgroup_bytes_max // bytes_needed * subgroup)
        workgroup = next((size for size in (256, 128, 64, 32) if size <= room), 0)
        if workgroup < subgroup:
            return None
        is_whole = (keys <= KEYS_WHOLE and not are_merged) or 2 * workgroups > WORKGROUPS_ENOUGH
        loaded = _LOADED_WHOLE if is_whole else _LOADED.get(keys, 16)
        unroll = max(1, loaded // -(-quads // lanes))
        most = 1 if is_whole else min(WORKGROUPS_ENOUGH // workgroups, SPLITS_MAX)
        splits = min(-(-keys // (workgroup // lanes * unroll)), most)
        return cls(subgroup, lanes, workgroup, unroll, splits)

    @property
    def declarations(self) -> dict[str, Any]:
        return {
            "SUBGROUP": self.subgroup,
            "LANES": self.lanes,
            "WORKGROUP": self.workgroup,
            "UNROLL": self.unroll,
        }


def context_bucket(context: AnyInt) -> int:
    """The upper end of a context's bucket: contexts up to it share a grid."""
    return next((size for size in BUCKETS if context <= size), 0) or bucket(context, 2 * BUCKETS[-1])


def chunks_of(
    count: AnyInt, floats: AnyInt, target: Target, workgroups: AnyInt = 1, multiple: int = 4
) -> Iterator[tuple[int, AnyInt]]:
    """(first, count) of the queries of each launch: as many as scratch memory, `floats` numbers per query,
    and the grid allow. Every `first` is a multiple of the given number."""
    room = min(SCRATCH_BYTES, target.binding_bytes_max) // (4 * most(floats))
    size = max(multiple, min(room, target.workgroups_max // most(workgroups)) // multiple * multiple)
    first = 0
    while first < count:
        yield first, min(size, count - first)
        first += size


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least 4 and at least `least`."""
    return max(4, 1 << (least - 1).bit_length())
