"""Live integers: numbers known only at a call, carried through planning as small affine expressions.

A plan is made once and used for many values of them. Arithmetic keeps them symbolic, so that the
length of [p, p + S) comes out as the plain number S. Comparing one, or using it where only a number
will do (`int(x)`, a shape), takes a decision: the trace notes the interval in which the decision
holds, and the plan is valid for every call whose live integers are inside all its intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pteron.ops.requirement import RequirementError
from pteron.ops.terms import WIDTH_MAX, Affine, Guard, Product, Quotient, Symbol, Tape, Term, Terms, number_of


@dataclass(slots=True)
class Trace:
    """The live integers while a plan is made: their values, their terms, the decisions taken on them."""

    values: Mapping[int, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the terms, in order
    decisions: dict[Terms, tuple[float, float]] = field(default_factory=dict)
    _terms: dict[Term, int] = field(default_factory=dict)  # each with its index on the tape

    @property
    def tape(self) -> Tape:
        return tuple(self._terms)

    def symbol(self, id: int) -> LiveInt:
        """A live integer of the graph."""
        return LiveInt(self.term(Symbol(id)), self)

    def term(self, term: Term) -> Affine:
        """A term as an expression; a new term is added to the tape."""
        if term not in self._terms:
            number = number_of(term, self.numbers, self.values)
            self.check(number)
            self._terms[term] = len(self.numbers)
            self.numbers.append(number)
        return Affine(0, ((self._terms[term], 1),))

    def check(self, number: int) -> None:
        if not -WIDTH_MAX <= number < WIDTH_MAX:
            raise RequirementError(f"a live integer of {number.bit_length()} bits does not fit into 64")

    def decide(self, expression: Affine, low: float, high: float) -> None:
        """The plan holds only while low <= expression <= high.

        Multiples of one expression share an interval: 32·p <= 100 is p <= 3.
        """
        terms, factor = _reduced(expression.terms)
        low, high = low - expression.constant, high - expression.constant
        if factor < 0:
            low, high, factor = -high, -low, -factor
        known_low, known_high = self.decisions.get(terms, (-math.inf, math.inf))
        self.decisions[terms] = (
            max(known_low, _divided(low, factor)),
            min(known_high, -_divided(-high, factor)),
        )

    def guards(self) -> tuple[Guard, ...]:
        return tuple(Guard(Affine(0, terms), low, high) for terms, (low, high) in self.decisions.items())


def _reduced(terms: Terms) -> tuple[Terms, int]:
    """Terms without the factor that all have in common, the first of them positive, and that factor."""
    if len(terms) == 1:
        ((term, factor),) = terms
        return ((term, 1),), factor
    factor = math.gcd(*(coefficient for _, coefficient in terms))
    if terms[0][1] < 0:
        factor = -factor
    return tuple((term, coefficient // factor) for term, coefficient in terms), factor


def _divided(number: float, factor: int) -> float:
    """A lower bound of an integer, divided by a factor: rounded up."""
    return number if math.isinf(number) else -(-int(number) // factor)


class LiveInt:
    """An affine expression of live integers that notes every decision taken on it."""

    __slots__ = ("expression", "trace")
    __hash__ = None  # type: ignore[assignment]  # equality takes a decision, so it must not hide in a dict

    def __init__(self, expression: Affine, trace: Trace) -> None:
        self.expression = expression
        self.trace = trace

    def __repr__(self) -> str:
        return f"LiveInt({self._value()})"

    def __str__(self) -> str:
        return str(self._value())

    def _value(self) -> int:
        return self.expression.evaluate(self.trace.numbers)

    def _with(self, expression: Affine) -> AnyInt:
        check = self.trace.check
        check(expression.constant)
        for _, factor in expression.terms:
            check(factor)
        return LiveInt(expression, self.trace) if expression.terms else expression.constant

    def __int__(self) -> int:
        value = self._value()
        self.trace.decide(self.expression, value, value)
        return value

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __neg__(self) -> AnyInt:
        return self._with(Affine(0).plus(self.expression, -1))

    def __add__(self, other: AnyInt) -> AnyInt:
        return self._with(self.expression.plus(affine(other)))

    __radd__ = __add__

    def __sub__(self, other: AnyInt) -> AnyInt:
        return self._with(self.expression.plus(affine(other), -1))

    def __rsub__(self, other: AnyInt) -> AnyInt:
        return self._with(affine(other).plus(self.expression, -1))

    def __mul__(self, other: AnyInt) -> AnyInt:
        if isinstance(other, LiveInt):
            return self._with(self.trace.term(Product(self.expression, other.expression)))
        return self._with(Affine(0).plus(self.expression, other))

    __rmul__ = __mul__

    def __floordiv__(self, other: AnyInt) -> AnyInt:
        if other == 0:  # a decision, so that no plan divides by zero
            raise RequirementError("floordiv by zero")
        return self._with(self.trace.term(Quotient(self.expression, affine(other))))

    def __rfloordiv__(self, other: AnyInt) -> AnyInt:
        if self == 0:
            raise RequirementError("floordiv by zero")
        return self._with(self.trace.term(Quotient(affine(other), self.expression)))

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
