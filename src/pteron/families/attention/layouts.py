"""How attention kernels are cut to a device: tiles for many queries, splits of the context for few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.ops import AnyInt, Target, bucket

DECODE_WIDTH_MAX = 256  # elements per head, beyond which a lane would hold too many
SPLITS_MAX = 64  # for each query: merging walks them one by one


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of attention_tiled.wgsl: queries by keys."""

    rows: int
    keys: int
    by_subgroups: bool = False

    @property
    def workgroup(self) -> int:
        return self.rows * self.keys // 16

    @property
    def declarations(self) -> dict[str, Any]:
        library = {"use_across": "across_subgroup"} if self.by_subgroups else {}
        return {"ROWS": self.rows, "KEYS": self.keys, **library}

    def on(self, target: Target) -> Tiles:
        """The same, by subgroups where they are wide enough."""
        return replace(self, by_subgroups=target.subgroup_size >= self.keys // 4)

    def bytes_needed(self, width: int) -> int:
        """Of workgroup memory: queries, keys or their shares, values."""
        return 4 * (self.rows * width + self.keys * max(width, self.rows) + self.keys * width)


TILES = (Tiles(64, 64), Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))


@dataclass(frozen=True, slots=True)
class Decode:
    """How attention_decode.wgsl takes few queries to a context: all keys of a split at once, in few splits,
    unless that is more than invocations can load."""

    subgroup: int
    lanes: int  # that share a key
    workgroup: int
    unroll: int  # keys that a group of lanes loads at once
    splits: int

    @classmethod
    def of(cls, width: int, context: AnyInt, target: Target) -> Decode | None:
        """The layout for a bucket of contexts, None where the device lacks what the kernel takes."""
        subgroup, quads = target.subgroup_size, width // 4
        if subgroup < 4 or width > DECODE_WIDTH_MAX:
            return None
        lanes = min(16, subgroup, max(4, 1 << (quads - 1).bit_length()))
        bytes_needed = 4 * (16 * quads + 8)  # of each subgroup, in workgroup memory
        for workgroup in (512, 256, 128, 64, 32):
            subgroups = workgroup // subgroup
            fits = 0 < subgroups * bytes_needed <= target.workgroup_bytes_max
            if fits and workgroup <= target.invocations_max:
                break
        else:
            return None
        keys = next((size for size in (128, 512, 2048) if context <= size), 0) or bucket(context, 4096)
        unroll = max(1, {128: 1, 512: 4}.get(keys, 8) // -(-quads // lanes))
        splits = min(max(4, -(-keys // (workgroup // lanes * unroll))), SPLITS_MAX)
        return cls(subgroup, lanes, workgroup, unroll, splits)

    @property
    def declarations(self) -> dict[str, Any]:
        return {
            "SUBGROUP": self.subgroup,
            "LANES": self.lanes,
            "WORKGROUP": self.workgroup,
            "UNROLL": self.unroll,
        }
