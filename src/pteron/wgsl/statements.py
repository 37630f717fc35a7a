"""Statements of a kernel about its loops and memory accesses: formulas in the first lines of its file.

    //! loops: ceil(length, LANES)          iterations of all loops that one invocation goes through
    //! extent x: rows * length             elements of a binding that it may touch, in scalars

A formula is an expression over members of Params (`k_strides[1]`), constants of the module, `groups` (the
grid), and the functions ceil(a, b) (a quotient rounded up), min and max. Planning evaluates them for every
launch: a kernel that states an extent for each of its bindings compiles without bounds checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

_STATEMENT = re.compile(r"^//! (loops|extent (\w+)): (.+)\n", re.MULTILINE)


@cache
def compiled(text: str) -> CodeType:
    """An expression as code; variants of a kernel have the same ones."""
    return compile(text.strip(), "<statement of a kernel>", "eval")


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression over a launch's parameters."""

    text: str
    code: CodeType
    known: dict[str, Any]  # functions, and the module's constants

    @classmethod
    def of(cls, text: str, constants: Mapping[str, int]) -> Formula:
        known = {"__builtins__": {}, **_FUNCTIONS, **constants}
        return cls(text, compiled(text), known)

    def value(self, names: Mapping[str, Any]) -> Any:
        """Its value: a number, or a live integer where a parameter is one."""
        return eval(self.code, self.known, names)


@dataclass(frozen=True, slots=True)
class Statements:
    loops: Formula | None = None
    extents: Mapping[str, Formula] = field(default_factory=dict)
    reach: Formula | None = None  # the extents of all bindings, in order, where each has one


def read_statements(
    text: str, bindings: Sequence[str], constants: Mapping[str, int]
) -> tuple[Statements, str]:
    """The statements of a kernel's text, and the text without them. Loops of libraries add up."""
    found = _STATEMENT.findall(text)
    loops = " + ".join(f"({formula})" for kind, _, formula in found if kind == "loops")
    texts = {binding: formula for _, binding, formula in found if binding}
    extents = {binding: Formula.of(formula, constants) for binding, formula in texts.items()}
    is_whole = all(binding in texts for binding in bindings)
    reach = "".join(f"({texts[binding]}), " for binding in bindings) if is_whole else ""
    statements = Statements(
        loops=Formula.of(loops, constants) if loops else None,
        extents=extents,
        reach=Formula.of(f"({reach})", constants) if is_whole else None,
    )
    return statements, _STATEMENT.sub("", text)


def _ceil(a: Any, b: Any) -> Any:
    # A quotient of a live integer would be another term, with a guard of its own.
    return a if isinstance(b, int) and b == 1 else (a + b - 1) // b


_FUNCTIONS = {"ceil": _ceil, "min": min, "max": max}
