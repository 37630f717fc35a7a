"""What to compare with, from a word or two of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pteron.errors import InputError

Kind = Literal["float64", "adapter", "route", "rewrites", "expected", "exported"]
ROUTES = {"software": True, "hardware": False}  # whether the adapter counts as a CPU
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
class Choice:
    """A kind of reference, and which of that kind."""

    kind: Kind
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.value}" if self.value else self.kind

    @classmethod
    def of(cls, text: str) -> Choice:
        """One of FORMS."""
        kind, _, value = text.partition("=")
        needs_value = kind in ("adapter", "route", "exported")
        is_known = kind in get_args(Kind) and bool(value) == needs_value
        if not is_known or (kind == "route" and value not in ROUTES):
            raise InputError(f"reference {text!r}: expected one of {', '.join(FORMS)}")
        return cls(kind, value)  # type: ignore[arg-type]  # it was looked up just now

    @property
    def sees_nodes(self) -> bool:
        """Whether nodes are compared, not outputs of the whole program alone."""
        return self.kind not in ("expected", "exported")
