"""How far a node's output may be from its reference: by what the operator does, and by the element type.

An element may be off by `relative · (|expected| + share · largest)`, where `largest` is the greatest
magnitude in the tensor: sums of many numbers cancel, so small ones among large ones carry the errors of
those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pteron.dtypes import DType
from pteron.errors import InputError


class Work(Enum):
    """What operators do, as far as rounding knows it; the later, the more of it."""

    MOVED = "moved"  # elements change places: not a bit may differ
    ELEMENTS = "elements"  # one rounding, or a function's polynomial
    SUMS = "sums"  # many products or terms
    STEPS = "steps"  # rounded to integers on the way: the last bit of a number may become a whole step
    PROGRAM = "program"  # all nodes of a program, each with its own

    __hash__ = object.__hash__


_RELATIVE: dict[tuple[Work, DType], float] = {
    (Work.ELEMENTS, DType.F32): 2e-5,
    (Work.ELEMENTS, DType.F16): 2e-3,
    (Work.ELEMENTS, DType.BF16): 1e-2,
    (Work.SUMS, DType.F32): 3e-5,
    (Work.SUMS, DType.F16): 5e-3,
    (Work.SUMS, DType.BF16): 2e-2,
    (Work.STEPS, DType.F32): 5e-3,
    (Work.STEPS, DType.F16): 2e-2,
    (Work.STEPS, DType.BF16): 4e-2,
    (Work.PROGRAM, DType.F32): 1e-3,
    (Work.PROGRAM, DType.F16): 2e-2,
    (Work.PROGRAM, DType.BF16): 4e-2,
}
# Of the largest element.
_SHARE = {Work.MOVED: 0.0, Work.ELEMENTS: 0.1, Work.SUMS: 1.0, Work.STEPS: 1.0, Work.PROGRAM: 1.0}
# Operators by the middle of their names, with a blank at both ends.
_MOVING = (
    " alias_copy cat clone copy embedding expand_copy flip gather index index_select permute permute_copy "
    "pixel_shuffle prepack repeat select_copy slice_copy split_with_sizes_copy squeeze_copy t_copy "
    "unfold_copy unsqueeze_copy update_cache upsample_nearest2d view_copy where _clone_dim_order _to_copy "
    "_to_dim_order_copy "
)
_ELEMENTWISE = (
    " abs add arange clamp constant_pad_nd cos div embedding_4bit embedding_q4gsw eq exp full full_like ge "
    "gelu gt hardshrink hardswish hardtanh le leaky_relu log10 lt minimum mul ne neg ones ones_like pow relu "
    "round rsqrt scalar_tensor sigmoid sin sqrt sub tanh zeros zeros_like "
)
_ROUNDING = ("quantize_", "choose_qparams", "q8ta_", "_dq8ca_", "requant")


def work_of(operator: str) -> Work:
    """What a node's operator does: sums, unless one of the lists above has it."""
    base = operator.split(".")[-2] if "." in operator else operator
    if f" {base} " in _MOVING:
        return Work.MOVED
    if any(word in base and "dequantize" not in base for word in _ROUNDING):
        return Work.STEPS
    return Work.ELEMENTS if f" {base} " in _ELEMENTWISE else Work.SUMS


def work_of_all(operators: Iterable[str]) -> Work:
    """What operators one after the other do."""
    order = list(Work)
    works = [work_of(name) for name in operators]
    most = max(works, key=order.index)
    return Work.SUMS if most is Work.ELEMENTS and works.count(most) > 1 else most


@dataclass(frozen=True, slots=True)
class Bound:
    """How far each element may be off."""

    relative: float
    share: float
    steps: float = 0.0  # and so much more, whatever its size


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The table above, with what somebody chose in its place, by what operators do."""

    chosen: Mapping[Work, float] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Tolerances:
        """`1e-3` for all floats, or `sums=1e-3` for what adds up; the last one counts."""
        chosen: dict[Work, float] = {}
        for text in texts:
            name, _, number = text.rpartition("=")
            try:
                works = [Work(name)] if name else [work for work in Work if work is not Work.MOVED]
                value = float(number)
            except ValueError:
                value = -1.0
                works = []
            if not works or not 0 <= value < float("inf"):
                kinds = ", ".join(f"{work.value}=1e-3" for work in Work)
                raise InputError(f"tolerance {text!r}: expected a number such as 1e-3, or one of {kinds}")
            chosen |= dict.fromkeys(works, value)
        return cls(chosen)

    def bound(self, work: Work, dtype: DType) -> Bound:
        """For outputs of a type; integers and booleans are exact, unless they are steps of a scale."""
        if not dtype.is_float:
            return Bound(0.0, 0.0, 1.0 if work is Work.STEPS and dtype is not DType.BOOL else 0.0)
        of_type = DType.F32 if dtype is DType.F64 else dtype
        relative = self.chosen.get(work, _RELATIVE.get((work, of_type), 0.0))
        return Bound(relative, _SHARE[work])
