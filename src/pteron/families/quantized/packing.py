"""4-bit weights and their scales as kernels read them."""

from __future__ import annotations

import numpy as np

from pteron.dtypes import Storage
from pteron.ops import AnyInt, Operand, Weight, require
from pteron.ops.operand import HostArray, packing


def words_per_group(group_size: AnyInt) -> int:
    """Words of eight weights that share a scale."""
    size = int(group_size)
    require(size > 0 and size % 8 == 0, f"group_size {size} must be a multiple of 8")
    return size // 8


def packed_words(weights: Operand) -> Weight:
    """A matrix of packed nibbles as 32-bit words."""
    return weights.packed("words", count=-(-weights.numel // 4), storage=Storage.U32)


def plain_scales(scales: Operand) -> Weight:
    """Scales as they lie in the file, in f32."""
    return scales.packed("plain", "f32", count=scales.numel, storage=Storage.F32)


def scales_by_row(scales: Operand, rows: int, groups: int) -> Weight:
    """Scales [group][row], both padded, as [row][group] of just these."""
    return scales.packed("scales by row", rows, groups, count=rows * groups, storage=Storage.F32)


@packing("words")
def _words(elements: HostArray) -> HostArray:
    return elements.reshape(-1).view(np.uint8)


@packing("scales by row")
def _scales_by_row(elements: HostArray, rows: int, groups: int) -> HostArray:
    return np.ascontiguousarray(elements[:groups, :rows].T.astype(np.float32))
