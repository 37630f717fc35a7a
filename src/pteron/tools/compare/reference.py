"""The reference of a comparison, parsed from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pteron.errors import InputError

Kind = Literal["float64", "adapter", "route", "rewrites", "expected", "exported"]
ROUTES = {"software": True, "hardware": False}  # whether kernels for CPUs are chosen
FORMS = (
    "float64",
    "adapter=NAME",
    "route=software",
    "route=hardware",
    "rewrites",
    "expected",
    "exported=FILE.pt2",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind of reference and its value: an adapter, a route or a file."""

    kind: Kind
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.value}" if self.value else self.kind

    @classmethod
    def of(cls, text: str) -> Reference:
        """Parse one of FORMS."""
        kind, _, value = text.partition("=")
        needs_value = kind in ("adapter", "route", "exported")
        is_known = kind in get_args(Kind) and bool(value) == needs_value
        if not is_known or (kind == "route" and value not in ROUTES):
            raise InputError(f"reference {text!r}: expected one of {', '.join(FORMS)}")
        return cls(kind, value)  # type: ignore[arg-type]  # checked above

    @property
    def sees_nodes(self) -> bool:
        """Whether nodes are compared, or only the outputs of the program."""
        return self.kind not in ("expected", "exported")
