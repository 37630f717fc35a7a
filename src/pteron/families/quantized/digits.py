"""Products with 4-bit or 8-bit weights for few rows, in integer arithmetic (q4_digits.wgsl): when the kernel
applies, its layout, and what is fused before and after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.families.linear.product import ROWS_FEW
from pteron.families.quantized.epilogue import Epilogue, RopeEpilogue
from pteron.families.quantized.packing import PackedWeights
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target
from pteron.ops.row_layout import folded
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

CHUNK = 4  # words of one load: 32 weights
WORKGROUPS_MIN = 120  # that keep an H200 busy
ROUNDS_MAX = 16  # 32 were 2 % faster at the only size measured, 128,256 columns of 4,096
SUBGROUP_MIN = 4  # invocations that share a chunk of x, and columns that share a shuffle


@dataclass(frozen=True, slots=True)
class Layout:
    """How a workgroup divides its columns and depth."""

    split: int  # subgroups that share the depth of a bundle of columns
    bundles: int  # at a time
    columns: int  # of a bundle
    rounds: int  # of bundles, one after the other

    @property
    def columns_at_once(self) -> int:
        """Columns of a workgroup."""
        return self.columns * self.bundles * self.rounds

    def in_rounds(self, columns: int) -> Layout:
        """With so many rounds that just enough workgroups are left: each converts x again."""
        rounds = 1
        while rounds < ROUNDS_MAX and columns >= 2 * rounds * self.bundles * self.columns * WORKGROUPS_MIN:
            rounds *= 2
        return replace(self, rounds=rounds)


def suits(target: Target, rows: AnyInt, packed: PackedWeights) -> bool:
    """Whether the kernel can run for this number of rows on this device."""
    is_even = packed.pitch % CHUNK == 0 and (packed.group % CHUNK == 0 or _has_two_scales(packed))
    rows_max = target.workgroups_max if packed.choice else ROWS_FEW
    is_some = 0 < rows <= rows_max and packed.columns > 0 and packed.depth > 0
    can_share = not target.is_cpu and target.packed_dots and target.subgroup_size >= SUBGROUP_MIN
    is_fit = is_even and is_some and can_share
    return is_fit and _bytes(target, packed, layout_of(target, packed)) <= target.workgroup_bytes_max


@dataclass(frozen=True, slots=True)
class Splits:
    """Rows of x as unmerged splits of attention (lib/x_source_splits.wgsl)."""

    parts: Scratch
    count: AnyInt  # for each query
    width: AnyInt  # of a head
    steps: AnyInt  # rows of a batch

    @property
    def arguments(self) -> dict[str, Any]:
        return {"parts": self.parts, "WIDTH": self.width, "SPLITS": self.count, "QUERY_STEPS": self.steps}


def product(
    x: Operand | Scratch | Splits,
    packed: PackedWeights,
    epilogue: Epilogue | RopeEpilogue,
    target: Target,
    x_scales: Operand | Scratch | None = None,
    x_zeros: Operand | Scratch | None = None,
    gain: Operand | None = None,
    eps: float = 0.0,
    least: float | None = None,
    *,
    is_gated: bool = False,
) -> Dispatch:
    """The launch that computes all outputs from x, from its RMS norm, or from unmerged splits of attention. x
    is taken as floats, as int8 by given scales and zero points per row, or as int8 by the extremes of each
    row with scales of at least `least`. If gated, the first half of the columns is the gate of the second."""
    rows = epilogue.count // (packed.columns // 2 if is_gated else packed.columns)
    if packed.choice:
        together, layout = 1, layout_of(target, packed)  # rows have different weights
    else:
        rows = int(rows)  # at most ROWS_FEW: a plan for each number of them
        layout = layout_of(target, packed)
        fitting = target.workgroup_bytes_max // _bytes(target, packed, layout)
        together = max(count for count in range(1, fitting + 1) if rows % count == 0)
    is_int8 = x_scales is not None or least is not None
    workgroups = folded(target, -(-packed.columns // layout.columns_at_once))[:2]
    return Dispatch(
        kernel("q4_digits"),
        **_sizes(target, packed, layout),
        ROWS=together,
        IS_INT8=is_int8,
        PLANES=None if is_int8 else target.digits,
        LEAST=least,
        EPS=eps if gain else None,
        **({"IS_GATED": True, "OTHERS": packed.columns // 2} if is_gated else {}),
        **(x.arguments if isinstance(x, Splits) else {"x": x}),
        **packed.operands,
        x_scales=x_scales,
        x_zeros=x_zeros,
        gain=gain,
        **epilogue.arguments,
        rows=rows,
        columns=packed.columns,
        groups=(rows // together, *workgroups),
    )


def _sizes(target: Target, packed: PackedWeights, layout: Layout) -> dict[str, Any]:
    """The overrides that follow from the weights and the device."""
    return {
        "SUBGROUP": target.subgroup_size,
        "SPLIT": layout.split,
        "BUNDLES": layout.bundles,
        "COLUMNS": layout.columns,
        "ROUNDS": layout.rounds,
        "QUADS": packed.depth // 4,
        "CHUNKS": chunks(packed),
        "PITCH": packed.pitch // CHUNK,
        "GROUP": max(1, packed.group // CHUNK),
        "IN_BYTES": packed.bits == 8,
        "HAS_TWO_SCALES": _has_two_scales(packed),
    }


def layout_of(target: Target, packed: PackedWeights) -> Layout:
    """The layout for a matrix of weights, by its depth and columns. Measured on an H200, in decode steps."""
    width, subgroups = target.subgroup_size, max(1, target.invocations_max // target.subgroup_size)
    split = min(-(-chunks(packed) // width), subgroups)  # with a chunk for every lane
    columns = packed.columns * (packed.choice.share if packed.choice else 1)  # of one row of x
    if split > 4:  # deep: few columns keep many subgroups busy
        return Layout(split, max(1, min(4, subgroups // split)), 4, 1).in_rounds(columns)
    if split > 2 or columns >= 65_536:
        return Layout(1, min(16, subgroups), 2, 1).in_rounds(columns)
    if columns >= 8192:
        return Layout(1, min(8, subgroups), 4, 2)
    return Layout(1, min(max(8, min(columns // 256, 16)), subgroups), 2, 1)  # some 128 workgroups


def chunks(packed: PackedWeights) -> int:
    """Loads that cover a row of weights."""
    return -(-packed.depth // (8 * CHUNK))


def _has_two_scales(packed: PackedWeights) -> bool:
    """Whether chunks of 8-bit weights have a scale for each half."""
    return packed.bits == 8 and 2 * packed.group == CHUNK and packed.depth % (8 * CHUNK) == 0


def _bytes(target: Target, packed: PackedWeights, layout: Layout) -> int:
    """Workgroup memory of a row of x: planes, units, squares and partial sums. As int8 (lib/planes_int8.wgsl)
    they take at most a KiB more, and less if they are long."""
    lanes = layout.split * target.subgroup_size
    cells = -(-chunks(packed) // lanes) * lanes
    sums = 4 * layout.split * layout.bundles * (1 + 2 * layout.columns)
    return cells * (32 * target.digits + 8) + sums
