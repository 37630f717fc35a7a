"""The tolerance of an output: by how its operator rounds, and by its element type.

An element may differ by `relative · (|expected| + share · largest)`, where `largest` is the largest magnitude
in the tensor: in sums that cancel, small results carry the errors of large terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pteron.dtypes import DType
from pteron.errors import InputError


class Rounding(Enum):
    """How operators round, in increasing order."""

    MOVED = "moved"  # elements are only moved: bits must be equal
    ELEMENTS = "elements"  # one rounding, or the polynomial of a function
    SUMS = "sums"  # many products or terms
    STEPS = "steps"  # rounded to integers on the way: a last bit may become a whole step
    PROGRAM = "program"  # all nodes of a program

    __hash__ = object.__hash__


_RELATIVE: dict[tuple[Rounding, DType], float] = {
    (Rounding.ELEMENTS, DType.F32): 2e-5,
    (Rounding.ELEMENTS, DType.F16): 2e-3,
    (Rounding.ELEMENTS, DType.BF16): 1e-2,
    (Rounding.SUMS, DType.F32): 3e-5,
    (Rounding.SUMS, DType.F16): 5e-3,
    (Rounding.SUMS, DType.BF16): 2e-2,
    (Rounding.STEPS, DType.F32): 5e-3,
    (Rounding.STEPS, DType.F16): 2e-2,
    (Rounding.STEPS, DType.BF16): 4e-2,
    (Rounding.PROGRAM, DType.F32): 1e-3,
    (Rounding.PROGRAM, DType.F16): 2e-2,
    (Rounding.PROGRAM, DType.BF16): 4e-2,
}
# Share of the largest element.
_SHARE = {
    Rounding.MOVED: 0.0,
    Rounding.ELEMENTS: 0.1,
    Rounding.SUMS: 1.0,
    Rounding.STEPS: 1.0,
    Rounding.PROGRAM: 1.0,
}
# Operators by base name, with a blank on both sides.
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


def rounding_of(operator: str) -> Rounding:
    """The rounding of an operator: sums, unless a list above names it."""
    base = operator.split(".")[-2] if "." in operator else operator
    if f" {base} " in _MOVING:
        return Rounding.MOVED
    if any(word in base and "dequantize" not in base for word in _ROUNDING):
        return Rounding.STEPS
    return Rounding.ELEMENTS if f" {base} " in _ELEMENTWISE else Rounding.SUMS


def rounding_of_all(operators: Iterable[str]) -> Rounding:
    """The rounding of a sequence of operators."""
    order = list(Rounding)
    found = [rounding_of(name) for name in operators]
    most = max(found, key=order.index)
    return Rounding.SUMS if most is Rounding.ELEMENTS and found.count(most) > 1 else most


@dataclass(frozen=True, slots=True)
class Bound:
    """The tolerance of each element."""

    relative: float
    share: float
    steps: float = 0.0  # absolute, for quantized integers


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
                kinds = (
                    [Rounding(name)] if name else [kind for kind in Rounding if kind is not Rounding.MOVED]
                )
                value = float(number)
            except ValueError:
                value = -1.0
                kinds = []
            if not kinds or not 0 <= value < float("inf"):
                forms = ", ".join(f"{kind.value}=1e-3" for kind in Rounding)
                raise InputError(f"tolerance {text!r}: expected a number such as 1e-3, or one of {forms}")
            chosen |= dict.fromkeys(kinds, value)
        return cls(chosen)

    def bound(self, rounding: Rounding, dtype: DType) -> Bound:
        """The tolerance of outputs of a type; integers are exact, except for quantized ones."""
        if not dtype.is_float:
            return Bound(0.0, 0.0, 1.0 if rounding is Rounding.STEPS and dtype is not DType.BOOL else 0.0)
        of_type = DType.F32 if dtype is DType.F64 else dtype
        relative = self.chosen.get(rounding, _RELATIVE.get((rounding, of_type), 0.0))
        return Bound(relative, _SHARE[rounding])
