"""Two arrays -> their difference in several measures; the tolerance of an output, by how its operator rounds
and by its element type.

An element may differ by `relative · (|expected| + share · largest)`, where `largest` is the largest magnitude
in the tensor: in sums that cancel, small results carry the errors of large terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import InputError

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
    # Scaled to prevent overflow.
    a, b = (
        x / max(float(np.abs(x).max(initial=0.0)), np.finfo(float).tiny)
        for x in (found[finite], wanted[finite])
    )
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


class Rounding(Enum):
    """How operators round, in increasing order."""

    MOVED = "moved"  # elements are only moved: bits must be equal
    ELEMENTS = "elements"  # one rounding, or the polynomial of a function
    SUMS = "sums"  # many products or terms
    STEPS = "steps"  # rounded to integers on the way: a last bit may become a whole step
    PROGRAM = "program"  # all nodes of a program


_RELATIVE = {
    Rounding.MOVED: {},
    Rounding.ELEMENTS: {DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 1e-2},
    Rounding.SUMS: {DType.F32: 3e-5, DType.F16: 5e-3, DType.BF16: 2e-2},
    Rounding.STEPS: {DType.F32: 5e-3, DType.F16: 2e-2, DType.BF16: 4e-2},
    Rounding.PROGRAM: {DType.F32: 1e-3, DType.F16: 2e-2, DType.BF16: 4e-2},
}
_OF_NODES = {kind.value: kind for kind in Rounding if kind is not Rounding.PROGRAM}
_HALF_STEP = 2.0**-24  # between half floats below 2^-14, whose relative error is larger
_SHARE = {Rounding.MOVED: 0.0, Rounding.ELEMENTS: 0.1}  # of the largest element; 1 for the others
# Operators by base name, with a blank on both sides.
_MOVING = (
    " alias_copy cat clone copy embedding expand_copy flip gather index index_select permute permute_copy "
    "pixel_shuffle prepack repeat select_copy slice_copy split_with_sizes_copy squeeze_copy t_copy "
    "unfold_copy unsqueeze_copy update_cache upsample_nearest2d view_copy where _clone_dim_order "
)
_ELEMENTWISE = (
    " abs add arange clamp constant_pad_nd cos div embedding_4bit embedding_q4gsw embedding_q8gsw eq exp "
    "full full_like ge gelu gt hardshrink hardswish hardtanh le leaky_relu log10 lt minimum mul ne neg "
    "ones ones_like pow relu round rsqrt scalar_tensor sigmoid sin sqrt sub tanh zeros zeros_like _to_copy "
    "_to_dim_order_copy "  # which may round to a narrower type
)
_ROUNDING = ("quantize_", "choose_qparams", "q8ta_", "_dq8ca_", "requant")


def rounding_of(operator: str) -> Rounding:
    """The rounding of an operator: sums, unless a list above names it."""
    base = operator.split(".")[-2] if "." in operator else operator
    if f" {base} " in _MOVING:
        return Rounding.MOVED
    if any(word in base and "dequantize" not in base for word in _ROUNDING):
        return Rounding.STEPS
    return Rounding.ELEMENTS if f" {base} " in _ELEMENTWISE else Rounding.SUMS


def rounding_of_all(operators: Iterable[str]) -> Rounding:
    order = list(Rounding)
    found = [rounding_of(name) for name in operators]
    most = max(found, key=order.index)
    return Rounding.SUMS if most is Rounding.ELEMENTS and found.count(most) > 1 else most


@dataclass(frozen=True, slots=True)
class Bound:
    relative: float
    share: float
    steps: float = 0.0  # absolute: a step of quantized integers, or of the smallest half floats


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerances above, some of them replaced by chosen ones."""

    chosen: Mapping[Rounding, float] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Tolerances:
        """Parse `1e-3` for all floats, or `sums=1e-3` for one kind; the last one wins."""
        chosen: dict[Rounding, float] = {}
        for text in texts:
            name, _, number = text.rpartition("=")
            try:
                kinds = [_OF_NODES[name]] if name else [*_OF_NODES.values()][1:]  # all but MOVED
                value = float(number)
            except (KeyError, ValueError):
                value = -1.0
            if not 0 <= value < float("inf"):
                forms = ", ".join(f"{kind}=1e-3" for kind in _OF_NODES)
                raise InputError(f"tolerance {text!r}: expected a number such as 1e-3, or one of {forms}")
            chosen |= dict.fromkeys(kinds, value)
        return cls(chosen)

    def bound(self, rounding: Rounding, dtype: DType) -> Bound:
        """The tolerance of outputs of a type; integers are exact, except for quantized ones."""
        if not dtype.is_float:
            return Bound(0.0, 0.0, 1.0 if rounding is Rounding.STEPS and dtype is not DType.BOOL else 0.0)
        of_type = DType.F32 if dtype is DType.F64 else dtype
        relative = self.chosen.get(rounding, _RELATIVE[rounding].get(of_type, 0.0))
        share = _SHARE.get(rounding, 1.0)  # with a chosen tolerance, moved elements are results of sums
        if rounding is Rounding.MOVED:
            return Bound(relative, 1.0 if rounding in self.chosen else share)
        return Bound(relative, share, _HALF_STEP if dtype is DType.F16 else 0.0)
