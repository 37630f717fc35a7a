"""Two values -> how they differ, and whether that is more than the arithmetic explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType

# Relative and absolute: half of the digits that the type has. Integers and booleans are exact.
_TOLERANCES = {
    DType.F64: (1e-4, 1e-5),
    DType.F32: (1e-4, 1e-5),
    DType.F16: (1e-2, 1e-3),
    DType.BF16: (4e-2, 1e-2),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a result is from what was expected; `problem` says in words why it is too far, if it is."""

    largest: float
    problem: str | None = None


def difference(expected: Any, actual: Any, dtype: DType | None = None) -> Difference:
    """Compare arrays or scalars; `dtype` is the element type where NumPy's does not say it (bf16)."""
    left, right = np.asarray(expected), np.asarray(actual)
    if left.shape != right.shape:
        return Difference(np.inf, f"shape {list(right.shape)} instead of {list(left.shape)}")
    kind = dtype or DType.of(left.dtype) or DType.F64
    relative, absolute = _TOLERANCES.get(kind, (0.0, 0.0))
    wanted, found = as_float(left, kind), as_float(right, kind)
    if wanted.size == 0:
        return Difference(0.0)
    with np.errstate(invalid="ignore"):  # inf - inf
        distance = np.where(
            (wanted == found) | (np.isnan(wanted) & np.isnan(found)), 0.0, np.abs(wanted - found)
        )
        fine = distance <= absolute + relative * np.abs(wanted)
    largest = float(np.max(np.nan_to_num(distance, nan=np.inf)))
    if fine.all():
        return Difference(largest)
    worst = np.unravel_index(
        int(np.argmax(np.where(fine, -1.0, np.nan_to_num(distance, nan=np.inf)))), fine.shape
    )
    return Difference(
        largest,
        f"{int((~fine).sum()):,} of {fine.size:,} values differ, "
        f"the worst at {[int(i) for i in worst]}: {found[worst]:.7g} instead of {wanted[worst]:.7g}",
    )


def as_float(array: npt.NDArray[Any], dtype: DType | None) -> npt.NDArray[np.float64]:
    """An array's values as float64; bf16 is carried as its raw bits."""
    if dtype is DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)
