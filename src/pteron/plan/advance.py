"""A plan from one step of a loop to the next: how its live parameters grow, and for how many steps it holds.

In a loop the live integers of a graph grow by the same number at every step, and what is affine in them does
too. So a kernel can bring the parameters from step to step, and the host has nothing to write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.ops.terms import Affine, Guard, Symbol, Tape
from pteron.plan.plan import Plan
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ADVANCE = kernel("advance")
Growth: TypeAlias = Mapping[int, int]  # of live integers at every step, by value id; 0 where one is missing


@dataclass(frozen=True, slots=True)
class Advance:
    """What one step changes."""

    words: tuple[
        tuple[int, int, int], ...
    ]  # of the live blocks: (block, byte offset, growth), none of them 0
    terms: tuple[int, ...]  # growth of each number of the plan's tape
    guards: tuple[
        tuple[Guard, int], ...
    ]  # those that some step will break, each with its expression's growth

    @classmethod
    def of(cls, plan: Plan, growth: Growth) -> Advance | None:
        """How a plan grows; None where something it depends on does not grow evenly."""
        terms = _of_tape(plan.tape, growth)
        if terms is None:
            return None
        words = [
            (index, offset, _of_affine(expression, terms))
            for index, block in enumerate(plan.blocks)
            for offset, expression in block.live
        ]
        guards = [(guard, _of_affine(guard.expression, terms)) for guard in plan.guards]
        return cls(
            tuple((index, offset, grown) for index, offset, grown in words if grown),
            tuple(terms),
            tuple((guard, grown) for guard, grown in guards if grown),
        )

    def steps(self, numbers: Sequence[int], most: int) -> int:
        """How many steps in a row the plan holds for, this one included, where its terms have these numbers
        now; `most` at the most."""
        for guard, growth in self.guards:
            bound = guard.high if growth > 0 else guard.low
            if not math.isinf(bound):
                most = min(most, 1 + (int(bound) - guard.expression.evaluate(numbers)) // growth)
        return most

    def after(self, numbers: Sequence[int], steps: int) -> list[int]:
        """The numbers of the terms, some steps later."""
        return [number + steps * growth for number, growth in zip(numbers, self.terms, strict=True)]


def _of_tape(tape: Tape, growth: Growth) -> list[int] | None:
    """The growth of each term; None where a product or a quotient changes, for those do not grow evenly."""
    grown: list[int] = []
    for term in tape:
        if isinstance(term, Symbol):
            grown.append(growth.get(term.id, 0))
        elif _of_affine(term.left, grown) or _of_affine(term.right, grown):
            return None
        else:
            grown.append(0)
    return grown


def _of_affine(expression: Affine, terms: Sequence[int]) -> int:
    return sum(factor * terms[term] for term, factor in expression.terms)
