"""Live integers: numbers known only at a call, carried through planning as small affine expressions.

A plan is made once and used for many values of them. Arithmetic keeps them symbolic, so that the
length of [p, p + S) comes out as the plain number S. Comparing one, or using it where only a number
will do (`int(x)`, a shape), takes a decision: the trace notes the interval in which the decision
holds, and the plan is good for every call whose live integers lie inside all its intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Symbol:
    """A live integer of the graph, by its value id."""

    id: int

    def evaluate(self, values: Mapping[int, int]) -> int:
        return values[self.id]


@dataclass(frozen=True, slots=True)
class Derived:
    """A product or floor quotient of live integers: not affine, so it stands as a term of its own."""

    kind: str
    left: Affine
    right: Affine

    def evaluate(self, values: Mapping[int, int]) -> int:
        left, right = self.left.evaluate(values), self.right.evaluate(values)
        return left * right if self.kind == "mul" else left // right


Term: TypeAlias = Symbol | Derived


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + Σ coefficient · term."""

    constant: int
    terms: tuple[tuple[Term, int], ...] = ()

    def evaluate(self, values: Mapping[int, int]) -> int:
        return self.constant + sum(factor * term.evaluate(values) for term, factor in self.terms)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + factor * coefficient
        terms = tuple((term, coefficient) for term, coefficient in total.items() if coefficient)
        return Affine(self.constant + factor * other.constant, terms)

    def times(self, factor: int) -> Affine:
        return Affine(0).plus(self, factor)


@dataclass(slots=True)
class Trace:
    """The values of the live integers while a plan is made, and the decisions taken on them."""

    values: dict[int, int] = field(default_factory=dict)
    decisions: dict[tuple[tuple[Term, int], ...], tuple[float, float]] = field(default_factory=dict)

    def decide(self, expression: Affine, low: float, high: float) -> None:
        """The plan holds only while low <= expression <= high."""
        known_low, known_high = self.decisions.get(expression.terms, (-math.inf, math.inf))
        shift = expression.constant
        self.decisions[expression.terms] = (max(known_low, low - shift), min(known_high, high - shift))

    def guards(self) -> tuple[Guard, ...]:
        return tuple(Guard(Affine(0, terms), low, high) for terms, (low, high) in self.decisions.items())


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on live integers under which a plan may be used."""

    expression: Affine
    low: float
    high: float

    def holds(self, values: Mapping[int, int]) -> bool:
        return self.low <= self.expression.evaluate(values) <= self.high


class LiveInt:
    """An affine expression of live integers that notes every decision taken on it."""

    __slots__ = ("expression", "trace")
    __hash__ = None  # type: ignore[assignment]  # equality takes a decision, so it must not hide in a dict

    def __init__(self, expression: Affine, trace: Trace) -> None:
        self.expression = expression
        self.trace = trace

    def __repr__(self) -> str:
        return f"LiveInt({self._value()})"

    def _value(self) -> int:
        return self.expression.evaluate(self.trace.values)

    def _with(self, expression: Affine) -> AnyInt:
        return LiveInt(expression, self.trace) if expression.terms else expression.constant

    def _derived(self, kind: str, left: AnyInt, right: AnyInt) -> AnyInt:
        return self._with(Affine(0, ((Derived(kind, affine(left), affine(right)), 1),)))

    def __int__(self) -> int:
        value = self._value()
        self.trace.decide(self.expression, value, value)
        return value

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __neg__(self) -> AnyInt:
        return self._with(self.expression.times(-1))

    def __add__(self, other: AnyInt) -> AnyInt:
        return self._with(self.expression.plus(affine(other)))

    __radd__ = __add__

    def __sub__(self, other: AnyInt) -> AnyInt:
        return self._with(self.expression.plus(affine(other), -1))

    def __rsub__(self, other: AnyInt) -> AnyInt:
        return self._with(affine(other).plus(self.expression, -1))

    def __mul__(self, other: AnyInt) -> AnyInt:
        if isinstance(other, LiveInt):
            return self._derived("mul", self, other)
        return self._with(self.expression.times(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: AnyInt) -> AnyInt:
        return self._derived("floordiv", self, other)

    def __rfloordiv__(self, other: AnyInt) -> AnyInt:
        return self._derived("floordiv", other, self)

    def __le__(self, other: AnyInt) -> bool:
        difference = self - other
        if isinstance(difference, int):
            return difference <= 0
        result = difference._value() <= 0
        low, high = (-math.inf, 0) if result else (1, math.inf)
        self.trace.decide(difference.expression, low, high)
        return result

    def __lt__(self, other: AnyInt) -> bool:
        return self <= other - 1

    def __gt__(self, other: AnyInt) -> bool:
        return not self <= other

    def __ge__(self, other: AnyInt) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, LiveInt)):
            return NotImplemented
        if self > other:
            return False
        return self >= other

    def __bool__(self) -> bool:
        return self != 0


AnyInt: TypeAlias = int | LiveInt


def affine(value: AnyInt) -> Affine:
    """The expression of a live or plain integer."""
    return value.expression if isinstance(value, LiveInt) else Affine(value)


def bucket(value: AnyInt, least: int = 1) -> int:
    """The smallest of `least`, 2 · least, 4 · least, ... that is at least `value`.

    For grids that grow with a live integer: the plan then holds for the whole bucket, not one value.
    """
    size = least
    while value > size:
        size *= 2
    return size
