"""4-bit and 8-bit weights and their scales, in the layouts that kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.dtypes import Storage
from pteron.ops import AnyInt, Operand, Scratch, Target, Weight, require
from pteron.ops.operand import HostArray, packing


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows in the order of their matrices, and bands of them (group_rows.wgsl); without buffers where
    matrices are chosen in turn."""

    order: Scratch | None = None
    bands: Scratch | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The matrix that each row of x is multiplied with, of several of the same shape (lib/experts.wgsl)."""

    experts: Operand | None  # the number of the matrix, for each row of the product; None: in turn
    matrices: int
    share: int  # rows of the product that have the same row of x
    grouping: Grouping | None = None  # for tiles

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a launch."""
        sizes = {"MATRICES": self.matrices, "SHARE": self.share, "IN_TURN": self.experts is None}
        if self.grouping:
            return {**sizes, "order": self.grouping.order, "band_table": self.grouping.bands}
        return {**sizes, "experts": self.experts}


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A matrix of weights in words of eight weights, and its scales; or several, each row of x with one."""

    weights: Weight
    scales: Weight
    columns: int  # of the product: rows of the matrix
    depth: int  # of x, a multiple of four
    pitch: int  # words from one row to the next
    group: int  # words that share a scale
    bits: int = 4  # of a weight
    choice: Choice | None = None
    minima: Weight | None = None  # of groups, as scales: a weight is scale · w + minimum

    @property
    def words(self) -> int:
        """Words of a row that x is multiplied with."""
        return -(-self.depth // 8)

    @property
    def operands(self) -> dict[str, Any]:
        """What a launch binds, and the matrix that a row is multiplied with."""
        chosen = self.choice.arguments if self.choice else {}
        return {"weights": self.weights, "scales": self.scales, "minima": self.minima, **chosen}

    @property
    def sizes(self) -> dict[str, Any]:
        """Constants of kernels that read words."""
        return {"WORDS": self.words, "PITCH": self.pitch, "GROUP": self.group}

    def fits(self, target: Target) -> bool:
        """Whether the device can bind both buffers."""
        return max(self.weights.bytes, self.scales.bytes) <= target.binding_bytes_max


def words_per_group(group_size: AnyInt) -> int:
    """Words, of eight weights each, that share a scale."""
    size = int(group_size)
    require(size > 0 and size % 8 == 0, f"group_size {size} must be a multiple of 8")
    return size // 8


def packed_words(weights: Operand) -> Weight:
    """A matrix of packed nibbles as 32-bit words."""
    return weights.packed("words", count=-(-weights.numel // 4), storage=Storage.U32)


def padded_words(weights: Operand) -> tuple[Weight, int]:
    """(words, words per row) with rows padded to multiples of four words."""
    rows, row_bytes = map(int, weights.shape)
    pitch = -(-row_bytes // 16) * 4
    if 4 * pitch == row_bytes:
        return packed_words(weights), pitch
    return weights.packed("words, padded", pitch, count=rows * pitch, storage=Storage.U32), pitch


def plain_scales(scales: Operand) -> Weight:
    """Scales in the order of the file, in f32."""
    return scales.packed("plain", "f32", count=scales.numel, storage=Storage.F32)


def scales_by_row(scales: Operand, rows: AnyInt, groups: AnyInt) -> Weight:
    """Scales [group][row], both padded, as [row][group] without padding."""
    return scales.packed("scales by row", rows, groups, count=rows * groups, storage=Storage.F32)


def sums_by_row(sums: Operand, rows: AnyInt, groups: AnyInt) -> Weight:
    """Sums of weights [group][row], both padded, as [row][group] without padding."""
    return sums.packed("sums by row", rows, groups, count=rows * groups, storage=Storage.I32)


def nibble_rows(weights: Operand, depth: AnyInt) -> Weight:
    """Rows of nibbles, the high one of a byte first, as rows of whole words, the lowest bits first."""
    words = -(-depth // 8)
    count = weights.shape[0] * words
    return weights.packed("nibbles, high first", depth, count=count, storage=Storage.U32)


def byte_rows(weights: Operand) -> Weight:
    """Rows of int8, each padded to a multiple of eight."""
    count = weights.shape[0] * -(-weights.shape[1] // 8) * 2
    return weights.packed("bytes by row", count=count, storage=Storage.U32)


@packing("columns of words")
def _columns_of_words(elements: HostArray, first: int, count: int, blocks: int, words: int) -> HostArray:
    rows = np.ascontiguousarray(elements[first : first + count]).view(np.uint32)[:, :words]
    return _in_fours(rows, blocks)


@packing("columns of scales")
def _columns_of_scales(elements: HostArray, first: int, count: int, blocks: int, groups: int) -> HostArray:
    """Scales of one group may come as a row."""
    elements = elements.reshape(-1, elements.shape[-1])
    rows = np.ascontiguousarray(elements[:groups, first : first + count].T, np.float32)
    return _in_fours(rows.view(np.uint32), blocks)


def _in_fours(rows: HostArray, blocks: int) -> HostArray:
    """Rows in blocks of four, [block][column][row]; missing rows are zeros."""
    filled = np.pad(rows, ((0, 4 * blocks - len(rows)), (0, 0)))
    return np.ascontiguousarray(filled.reshape(blocks, 4, -1).swapaxes(1, 2))


@packing("words", by_element=True)
def _words(elements: HostArray) -> HostArray:
    return elements.reshape(-1).view(np.uint8)


@packing("words, padded")
def _padded_words(elements: HostArray, pitch: int) -> HostArray:
    bytes = elements.view(np.uint8)
    return np.pad(bytes, ((0, 0), (0, 4 * pitch - bytes.shape[1])))


@packing("nibbles, high first")
def _nibble_rows(elements: HostArray, depth: int) -> HostArray:
    bytes = elements.view(np.uint8)
    nibbles = np.stack([bytes >> 4, bytes & 15], -1).reshape(len(bytes), -1)[:, :depth]
    padded = np.pad(nibbles, ((0, 0), (0, -depth % 8)), constant_values=8)  # weights that are zero
    return np.asarray(padded[:, ::2] | padded[:, 1::2] << 4)


@packing("bytes by row")
def _byte_rows(elements: HostArray) -> HostArray:
    return np.pad(elements, ((0, 0), (0, -elements.shape[1] % 8)))


@packing("scales by row")
def _scales_by_row(elements: HostArray, rows: int, groups: int) -> HostArray:
    """Scales of one group may come as a row."""
    elements = elements.reshape(-1, elements.shape[-1])
    return np.ascontiguousarray(elements[:groups, :rows].T, np.float32)


@packing("sums by row")
def _sums_by_row(elements: HostArray, rows: int, groups: int) -> HostArray:
    return np.ascontiguousarray(elements[:groups, :rows].T)
