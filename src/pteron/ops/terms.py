"""Live integers as data: affine expressions over terms on a tape.

A product or quotient of live integers is not affine: it is a term of its own. Each term is on the tape once,
in order, so that expressions share terms and one pass evaluates all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Terms: TypeAlias = tuple[tuple[int, int], ...]  # (index on the tape, coefficient)
WIDTH_MAX = 1 << 63  # live integers are 64-bit, as in PyTorch


class Affine(NamedTuple):
    """constant + Σ coefficient · term, terms by their index on a tape."""

    constant: int
    terms: Terms = ()

    def evaluate(self, numbers: Sequence[int]) -> int:
        """Its value for these numbers of the tape's terms."""
        return self.constant + sum(factor * numbers[term] for term, factor in self.terms)

    def times(self, factor: int) -> Affine:
        terms = tuple([(term, factor * coefficient) for term, coefficient in self.terms]) if factor else ()
        return Affine(factor * self.constant, terms)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Affine(constant, self.terms)
        if not self.terms:
            return Affine(constant, other.times(factor).terms)
        if len(self.terms) == len(other.terms) == 1 and self.terms[0][0] == other.terms[0][0]:
            ((term, mine),), ((_, its),) = self.terms, other.terms
            coefficient = mine + factor * its
            return Affine(constant, ((term, coefficient),) if coefficient else ())
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + factor * coefficient
        terms = tuple(sorted((term, coefficient) for term, coefficient in total.items() if coefficient))
        return Affine(constant, terms)


RANK_MAX = 32


def dim_id(tensor: int, dim: int) -> int:
    """The id of a dim of an input among live integers: below 0, since these have the ids of their values."""
    return -1 - RANK_MAX * tensor - dim


@dataclass(frozen=True, slots=True)
class Symbol:
    """A live integer of the graph, by its value id; or a live dim, by `dim_id`."""

    id: int

    @property
    def is_dim(self) -> bool:
        return self.id < 0


@dataclass(frozen=True, slots=True)
class Product:
    left: Affine
    right: Affine


@dataclass(frozen=True, slots=True)
class Quotient:
    """Rounded down."""

    left: Affine
    right: Affine


Term: TypeAlias = Symbol | Product | Quotient
Tape: TypeAlias = tuple[Term, ...]


def evaluate(tape: Iterable[Term], values: Mapping[int, int]) -> list[int]:
    """The number of each term of a tape, where the live integers of the graph have these values.

    A number that leaves 64 bits is an OverflowError. A quotient by zero is 0: a
    guard of the plan already excludes this divisor.
    """
    numbers: list[int] = []
    for term in tape:
        number = number_of(term, numbers, values)
        if not -WIDTH_MAX <= number < WIDTH_MAX:
            raise OverflowError(f"a live integer of {number.bit_length()} bits")
        numbers.append(number)
    return numbers


def number_of(term: Term, numbers: Sequence[int], values: Mapping[int, int]) -> int:
    """The number of a term, given the numbers of earlier terms and the values of live integers."""
    if isinstance(term, Symbol):
        return values[term.id]
    left, right = term.left.evaluate(numbers), term.right.evaluate(numbers)
    if isinstance(term, Product):
        return left * right
    return left // right if right else 0


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on live integers under which a plan may be used."""

    expression: Affine
    low: float
    high: float

    def holds(self, numbers: Sequence[int]) -> bool:
        return self.low <= self.expression.evaluate(numbers) <= self.high
