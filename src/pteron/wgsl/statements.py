"""What a kernel states of itself, in lines that open its file, as formulas over its parameters:

    //! loops: ceil(length, LANES)          iterations of all loops that one invocation goes through
    //! extent x: rows * length             elements of a binding that it may touch, in scalars

A formula is an expression over members of Params (`k_strides[1]`), constants of the module, `groups` (the
grid), and the functions ceil(a, b) (a quotient rounded up), min and max. Planning evaluates them for every
launch: a kernel that states an extent for each of its bindings compiles without bounds checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

_STATEMENT = re.compile(r"^//! (loops|extent (\w+)): (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression over a launch's parameters."""

    text: str
    code: CodeType

    @classmethod
    def of(cls, text: str) -> Formula:
        return cls(text, compile(text, "<statement of a kernel>", "eval"))

    def value(self, names: Mapping[str, Any]) -> Any:
        """Its value: a number, or a live integer where a parameter is one."""
        return eval(self.code, {"__builtins__": {}, **_FUNCTIONS, **names})


@dataclass(frozen=True, slots=True)
class Statements:
    """A kernel's formulas."""

    loops: Formula | None
    extents: Mapping[str, Formula]


def read_statements(text: str) -> tuple[Statements, str]:
    """The statements of a kernel's text, and the text without them. Loops of libraries add up."""
    loops: list[str] = []
    extents: dict[str, Formula] = {}
    for kind, binding, formula in _STATEMENT.findall(text):
        if binding:
            extents[binding] = Formula.of(formula)
        elif kind == "loops":
            loops.append(f"({formula})")
    total = Formula.of(" + ".join(loops)) if loops else None
    return Statements(total, extents), _STATEMENT.sub("", text)


def _ceil(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


_FUNCTIONS = {"ceil": _ceil, "min": min, "max": max}
