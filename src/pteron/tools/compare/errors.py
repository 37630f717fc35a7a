"""Two arrays -> their difference in several measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.tools.compare.tolerances import Bound

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Errors:
    """The differences of a tensor from its reference. A NaN or infinity in only one of them counts as an
    infinite difference."""

    max_abs: float
    mean_abs: float
    relative: float  # the largest difference, relative to the largest magnitude of the reference
    cosine: float  # similarity
    ulp: float  # the largest difference in units in the last place of the reference
    of_tolerance: float  # the largest difference as a multiple of the tolerance
    problem: str | None = None  # in words, if beyond the tolerance

    @property
    def departs(self) -> bool:
        return self.problem is not None


def measure(actual: Array, expected: Array, dtype: DType, bound: Bound) -> Errors:
    """The errors of a tensor; the reference is in float64 or int64."""
    if actual.shape != expected.shape:
        problem = f"shape {list(actual.shape)} instead of {list(expected.shape)}"
        return Errors(np.inf, np.inf, np.inf, 0.0, np.inf, np.inf, problem)
    if actual.size == 0:
        return Errors(0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    found, wanted = actual.astype(np.float64), expected.astype(np.float64)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):  # inf - inf
        apart = np.where(same, 0.0, np.abs(found - wanted))
    apart[np.isnan(apart)] = np.inf
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    largest = float(size.max())
    allowed = bound.relative * (size + bound.share * largest) + bound.steps
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(apart == 0, 0.0, apart / allowed)
    greatest = float(apart.max())
    return Errors(
        max_abs=greatest,
        mean_abs=float(apart.mean()),
        relative=greatest / largest if largest else (np.inf if greatest else 0.0),
        cosine=_cosine(found, wanted),
        ulp=float((apart / _steps(wanted, dtype)).max()),
        of_tolerance=float(times.max()),
        problem=_problem(found, wanted, times) if times.max() > 1 else None,
    )


def held_type(dtype: DType, *arrays: Array) -> DType:
    """The type that values were rounded to: adapters without f16 store it as f32."""
    is_half = any(array.dtype == np.float16 for array in arrays)
    return DType.F32 if dtype is DType.F16 and not is_half else dtype


def _cosine(found: Array, wanted: Array) -> float:
    finite = np.isfinite(found) & np.isfinite(wanted)
    a, b = found[finite], wanted[finite]
    a, b = (
        x / max(float(np.abs(x).max(initial=0.0)), np.finfo(float).tiny) for x in (a, b)
    )  # prevents overflow
    lengths = float(np.sqrt((a @ a) * (b @ b)))
    if lengths == 0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float(np.clip((a @ b) / lengths, -1.0, 1.0))


def _steps(wanted: Array, dtype: DType) -> Array:
    """The distance from each value to the next value of its type."""
    if not dtype.is_float:
        return np.ones_like(wanted)
    if dtype is DType.BF16:
        return np.asarray(
            np.maximum(np.exp2(np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 7), 2.0**-133)
        )
    narrow = np.float16 if dtype is DType.F16 else np.float32
    most = float(np.finfo(narrow).max) / 2  # the largest value has no next one
    clipped = np.clip(np.nan_to_num(np.abs(wanted), nan=0.0), 0, most).astype(narrow)
    return np.asarray(np.spacing(clipped), np.float64)


def _problem(found: Array, wanted: Array, times: Array) -> str:
    worst = np.unravel_index(int(np.argmax(times)), times.shape)
    return (
        f"{int((times > 1).sum()):,} of {times.size:,} values exceed the tolerance, the worst at "
        f"{[int(i) for i in worst]}: {found[worst]:.7g} instead of {wanted[worst]:.7g}"
    )
