"""Fusions: chains of exported operators that one operator of ours computes, written as patterns.

    fusion("pteron.silu_mul(x, y)", "s = aten.sigmoid.default(x)", "g = aten.mul.Tensor(x, s)", "out = ...")

A pattern names what the chain reads (`x`, `y`) and what it makes on the way (`s`, `g`), which must be of no
use to anybody else. The last line's result is the fused operator's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pteron.ops.registry import OPERATORS

_CALL = re.compile(r"(?:(\w+) = )?([\w.]+)\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a pattern: `result = operator(arguments)`."""

    result: str
    operator: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A chain of steps, and the operator with its arguments that takes their place."""

    fused: Step
    steps: tuple[Step, ...]


FUSIONS: list[Fusion] = []


def fusion(fused: str, *steps: str) -> None:
    """Register a fusion; its operators must be defined."""
    made = Fusion(_step(fused), tuple(map(_step, steps)))
    for step in (made.fused, *made.steps):
        if step.operator not in OPERATORS:
            raise ValueError(f"a fusion names {step.operator}, which is not defined")
    FUSIONS.append(made)


def _step(line: str) -> Step:
    match = _CALL.fullmatch(line)
    if match is None:
        raise ValueError(f"not a call: {line!r}")
    return Step(match[1] or "", match[2], tuple(name.strip() for name in match[3].split(",")))


fusion(
    "pteron.silu_mul(x, y)",
    "s = aten.sigmoid.default(x)",
    "g = aten.mul.Tensor(x, s)",
    "out = aten.mul.Tensor(g, y)",
)
