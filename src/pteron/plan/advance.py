"""How the live parameters of a plan grow from one step of a loop to the next, and for how many steps it
holds.

In a loop the live integers of a graph grow by a constant at every step, and so does every affine expression
of them. So a kernel can update the parameters, and the host writes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.ops.terms import Affine, Guard, Symbol, Tape, evaluate
from pteron.plan.plan import Plan
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ADVANCE = kernel("advance")
GROWTHS = 32  # maximum of words that the last kernel of a step can update
Growth: TypeAlias = Mapping[int, int]  # of live integers per step, by value id; missing: 0


@dataclass(frozen=True, slots=True)
class Advance:
    """What one step changes."""

    plan: Plan
    growth: Growth
    # Of the live blocks: (block, byte offset, growth), none of them 0.
    words: tuple[tuple[int, int, int], ...]
    # Guards that a step may break, with the growth of their expressions; and whether these are all guards.
    guards: tuple[tuple[Guard, int], ...]
    is_even: bool

    @classmethod
    def of(cls, plan: Plan, growth: Growth) -> Advance | None:
        """How a plan grows; None if a parameter does not grow by a constant."""
        terms = _of_tape(plan.tape, growth)
        words = [
            (index, offset, _of_affine(expression, terms))
            for index, block in enumerate(plan.blocks)
            for offset, expression in block.live
        ]
        if any(grown is None for *_, grown in words):
            return None
        guards = [(guard, _of_affine(guard.expression, terms)) for guard in plan.guards]
        return cls(
            plan,
            growth,
            tuple((index, offset, grown) for index, offset, grown in words if grown),
            tuple((guard, grown) for guard, grown in guards if grown),
            is_even=all(grown is not None for _, grown in guards),
        )

    def steps(self, numbers: Sequence[int], most: int) -> int:
        """How many steps in a row the plan holds, this one included, from these numbers of its terms on; at
        most `most`."""
        for guard, growth in self.guards:
            bound = guard.high if growth > 0 else guard.low
            if not math.isinf(bound):
                most = min(most, 1 + (int(bound) - guard.expression.evaluate(numbers)) // growth)
        if not self.is_even:
            for step in range(1, most):
                if self.plan.numbers(self._values(numbers, step)) is None:
                    return step
        return most

    def after(self, numbers: Sequence[int], steps: int) -> list[int]:
        """The numbers of the terms, some steps later."""
        return evaluate(self.plan.tape, self._values(numbers, steps))

    def _values(self, numbers: Sequence[int], steps: int) -> dict[int, int]:
        """The live integers of the graph, some steps later."""
        return {
            term.id: number + steps * self.growth.get(term.id, 0)
            for term, number in zip(self.plan.tape, numbers, strict=True)
            if isinstance(term, Symbol)
        }


def _of_tape(tape: Tape, growth: Growth) -> list[int | None]:
    """The growth of each term; None if it is not constant, as for a product or quotient that changes."""
    grown: list[int | None] = []
    for term in tape:
        if isinstance(term, Symbol):
            grown.append(growth.get(term.id, 0))
        else:
            is_fixed = _of_affine(term.left, grown) == 0 == _of_affine(term.right, grown)
            grown.append(0 if is_fixed else None)
    return grown


def _of_affine(expression: Affine, terms: Sequence[int | None]) -> int | None:
    total = 0
    for term, factor in expression.terms:
        growth = terms[term]
        if growth is None:
            return None
        total += factor * growth
    return total
