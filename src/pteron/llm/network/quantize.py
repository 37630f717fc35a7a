"""Float32 matrices enter, in blocks of rows; integers and scales leave, as ExecuTorch's exporter makes them.

Eight bits: a scale per row, or per group of columns in a row. Four bits: integers from -8 to 7, a scale per
group of columns, two integers per byte (the even column in the low half).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.format.stored_tensor import Array, Groups

LOWEST, HIGHEST, INT8_MAX = -8, 7, 127
_ITERATIONS = 20
_EPSILON = np.float32(np.finfo(np.float32).eps)
_TINY = np.float32(np.finfo(np.float32).tiny)
_GROUPS = 1 << 12  # rounded at a time: they stay in the CPU's cache
_FEW = 64  # groups that show whether the others are worth a look

Integers: TypeAlias = npt.NDArray[np.int8]
# groups [count, group] -> integers of the same shape and scales [count]
Rounding: TypeAlias = Callable[[Array], tuple[Integers, Array]]


def quantize_8_bits(rows: Array) -> tuple[Integers, Array]:
    """Integers and scales [rows]."""
    largest = np.maximum(rows.max(1), -rows.min(1))
    scales = np.maximum(largest / np.float32(INT8_MAX), _TINY)
    scaled = rows / scales[:, None]
    np.rint(scaled, out=scaled)
    return scaled.astype(np.int8), scales


def quantize_groups(rows: Array, group: int) -> Groups:
    """8-bit integers in groups of columns."""
    integers, scales = quantize_8_bits(rows.reshape(-1, group))
    return Groups(integers.reshape(rows.shape), scales.reshape(*rows.shape[:-1], rows.shape[-1] // group))


def quantize_4_bits(rows: Array, group: int, rounding: Rounding) -> tuple[Integers, Array]:
    """Integers and scales [rows, groups]. Rows in GGUF's type Q4_0 stay exact."""
    groups = rows.reshape(-1, group)
    if _is_exact(groups[:_FEW]) and _is_exact(groups):
        rounding = _round_from_lowest
    values, scales = np.empty(groups.shape, np.int8), np.empty(len(groups), np.float32)
    for start in range(0, len(groups), _GROUPS):
        part = slice(start, start + _GROUPS)
        values[part], scales[part] = rounding(groups[part])
    return values.reshape(rows.shape), scales.reshape(len(rows), -1)


def _is_exact(groups: Array) -> bool:
    """Whether all groups are integers times scales already."""
    integers, scales = _round_from_lowest(groups)
    return bool((integers * scales[:, None] == groups).all())


def _round_from_lowest(groups: Array) -> tuple[Integers, Array]:
    """The weight of the largest magnitude becomes the lowest integer, so that scales may be negative."""
    largest = np.take_along_axis(groups, np.abs(groups).argmax(1)[:, None], 1)[:, 0]
    scales = np.where(largest == 0, 1, largest / np.float32(LOWEST)).astype(np.float32)
    return _integers(groups / scales[:, None]).astype(np.int8), scales


def round_by_extremes(groups: Array) -> tuple[Integers, Array]:
    """Scales from each group's largest weight."""
    largest = np.abs(groups).max(1)
    scales = np.maximum(largest / np.float32((HIGHEST - LOWEST) / 2), _TINY)
    return _integers(groups * (np.float32(1) / scales)[:, None]).astype(np.int8), scales


def round_to_nearest(groups: Array) -> tuple[Integers, Array]:
    """Scales by alternation: integers at the current scale, then the best scale for these integers (HQQ).

    A group whose scale stays the same is finished, and only the others are computed again.
    """
    scales = np.maximum(np.abs(groups).max(1) / np.float32(-LOWEST), _EPSILON)
    active = np.arange(len(groups))
    for _ in range(_ITERATIONS):
        weights, before = groups[active], scales[active]
        integers = _integers(weights / before[:, None])
        products = np.einsum("ij,ij->i", weights, integers)
        squares = np.einsum("ij,ij->i", integers, integers)
        after = np.where(squares > 0, products / np.where(squares > 0, squares, 1), before)
        scales[active] = after = np.maximum(after, _EPSILON)
        active = active[after != before]
        if len(active) == 0:
            break
    return _integers(groups / scales[:, None]).astype(np.int8), scales


ROUNDINGS: dict[str, Rounding] = {"nearest": round_to_nearest, "extremes": round_by_extremes}


def pack_4_bits(values: Integers, columns: int) -> npt.NDArray[np.uint8]:
    """Two columns per byte; missing columns up to `columns` are 0."""
    shifted = (values + np.int8(-LOWEST)).view(np.uint8)
    if columns != shifted.shape[1]:
        shifted = np.pad(shifted, ((0, 0), (0, columns - shifted.shape[1])), constant_values=-LOWEST)
    return np.asarray(shifted[:, 0::2] | shifted[:, 1::2] << 4, np.uint8)


def group_sums(values: Integers, group: int) -> npt.NDArray[np.int32]:
    """The sum of each group's integers, [rows, groups]."""
    return np.asarray(values.reshape(len(values), -1, group).sum(2, dtype=np.int32))


def _integers(scaled: npt.NDArray[Any]) -> Array:
    """Nearest integers of the 4-bit range, stored as floats."""
    np.rint(scaled, out=scaled)
    return np.clip(scaled, LOWEST, HIGHEST, out=scaled)
