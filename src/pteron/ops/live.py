"""Live integers: numbers known only at a call, carried through planning as small affine expressions.

A plan is made once and used for many values of them. Arithmetic keeps them symbolic, so that the
length of [p, p + S) comes out as the plain number S. Comparing one, or using it where only a number
will do (`int(x)`, a constant of a kernel), takes a decision: the trace notes the interval in which the
decision holds, and the plan is valid for every call whose live integers are inside all its intervals.

A decision that leaves one value replaces a term: after S == 1, S is 1 in all that follows; after
S % 4 == 0, it is 4 · (S // 4); after S == T, T is S.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pteron.graph import Node
from pteron.ops.requirement import RequirementError
from pteron.ops.terms import (
    WIDTH_MAX,
    Affine,
    Guard,
    Product,
    Quotient,
    Symbol,
    Tape,
    Term,
    Terms,
    number_of,
)
from pteron.wgsl import LIVE

Interval: TypeAlias = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)
_DEGREE_MAX = 6  # of products that are multiplied out


@dataclass(slots=True)
class Trace:
    """The live integers while a plan is made: their values, their terms, the decisions taken on them."""

    values: Mapping[int, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the terms, in order
    decisions: dict[Terms, Interval] = field(default_factory=dict)
    node: Node | None = None  # that is planned
    pins: dict[int, Node | None] = field(default_factory=dict)  # dims whose value a node takes, and the node
    changes: int = 0  # terms and decisions that were new
    _tape: list[Term] = field(default_factory=list)
    _terms: dict[Term, int] = field(default_factory=dict)  # each with its index on the tape
    _bounds: list[Interval] = field(default_factory=list)  # of the terms, by the decisions so far
    _factors: list[tuple[int, ...]] = field(default_factory=list)  # of a product: terms that are none
    _replaced: dict[int, Affine] = field(default_factory=dict)  # terms that have one value
    _renewals: dict[int, Affine] = field(default_factory=dict)  # of all terms, by these
    _users: dict[int, list[int]] = field(default_factory=dict)  # of each term, those that are made of it
    _fixed: set[int] = field(default_factory=set)  # terms that depend on more than dims

    @property
    def tape(self) -> Tape:
        return tuple(self._tape)

    def symbol(self, id: int, low: float = -math.inf, high: float = math.inf) -> LiveInt:
        """A live integer of the graph, or a live dim, which every call keeps within bounds."""
        return LiveInt(self.term(Symbol(id), (low, high)), self)

    def dims(self) -> list[AnyInt]:
        """The live dims."""
        found = [index for index, term in enumerate(self._tape) if isinstance(term, Symbol) and term.is_dim]
        return [LiveInt(Affine(0, ((index, 1),)), self) for index in found]

    def term(self, term: Term, bounds: Interval | None = None) -> Affine:
        """A term as an expression; a new term is added to the tape."""
        index = self._terms.get(term)
        if index is None:
            number = number_of(term, self.numbers, self.values)
            self.check(number)
            self.changes += 1
            index = self._terms[term] = len(self._tape)
            self._tape.append(term)
            self.numbers.append(number)
            self._bounds.append(bounds or self._bounds_of(term))
            self._factors.append((index,))
            if not isinstance(term, Symbol):
                for part, _ in (*term.left.terms, *term.right.terms):
                    self._users.setdefault(part, []).append(index)
            if not self._is_of_dims(term):
                self._fixed.add(index)
        return Affine(0, ((index, 1),))

    def check(self, number: int) -> None:
        if not -WIDTH_MAX <= number < WIDTH_MAX:
            raise RequirementError(f"a live integer of {number.bit_length()} bits does not fit into 64")

    def is_of_dims(self, expression: Affine) -> bool:
        """Whether dims of inputs alone determine it: then it stays while a loop advances."""
        return not any(term in self._fixed for term, _ in expression.terms)

    def bounds(self, expression: Affine) -> Interval:
        """What it is between, by the decisions so far."""
        low = high = float(expression.constant)
        for term, factor in expression.terms:
            least, most = self._bounds[term]
            if factor < 0:
                least, most = most, least
            low += factor * least
            high += factor * most
        return low, high

    def decide(self, expression: Affine, low: float, high: float) -> None:
        """The plan holds only while low <= expression <= high.

        Multiples of one expression share an interval: 32·p <= 100 is p <= 3.
        """
        terms, factor = _reduced(expression.terms)
        low, high = low - expression.constant, high - expression.constant
        if factor < 0:
            low, high, factor = -high, -low, -factor
        known_low, known_high = self.decisions.get(terms, ANY)
        low, high = max(known_low, _divided(low, factor)), min(known_high, -_divided(-high, factor))
        if (low, high) == (known_low, known_high):
            return
        self.changes += 1
        self.decisions[terms] = low, high
        if len(terms) == 1:
            ((term, _),) = terms
            self._narrow(term, low, high)
            low, high = self._bounds[term]
        if low == high:
            self._replace(terms, int(low))

    def _narrow(self, term: int, low: float, high: float) -> None:
        """Less is left of a term, and so of the terms that are made of it."""
        before = self._bounds[term]
        self._bounds[term] = after = max(low, before[0]), min(high, before[1])
        if after != before:
            for user in self._users.get(term, ()):
                self._narrow(user, *self._bounds_of(self._tape[user]))

    def pin(self, expression: Affine, value: int) -> None:
        """The plan holds only for this value; its dims are noted as pinned."""
        self.decide(expression, value, value)
        waiting, seen = [expression], set[int]()
        while waiting:
            new = {term for term, _ in waiting.pop().terms} - seen
            seen |= new
            for term in (self._tape[index] for index in new):
                if not isinstance(term, Symbol):
                    waiting += term.left, term.right
                elif term.is_dim:
                    self.pins.setdefault(term.id, self.node)

    def product(self, left: Affine, right: Affine) -> Affine:
        """The sum of the products of their terms, so that equal products of dims are one expression."""
        degree, count = self._degree(left) + self._degree(right), len(left.terms) * len(right.terms)
        if max(degree, count) > _DEGREE_MAX or not (self.is_of_dims(left) and self.is_of_dims(right)):
            return self.term(Product(left, right))
        total = Affine(left.constant * right.constant)
        total = total.plus(Affine(0, left.terms), right.constant).plus(Affine(0, right.terms), left.constant)
        for term, factor in left.terms:
            for other, times in right.terms:
                factors = tuple(sorted(self._factors[term] + self._factors[other]))
                total = total.plus(self._monomial(factors), factor * times)
        return total

    def quotient(self, left: Affine, right: Affine) -> Affine:
        """Rounded down; what divides evenly is no quotient."""
        whole, rest = Affine(0), left
        if right.constant and not right.terms:
            divisor = right.constant
            even = {term: factor // divisor for term, factor in left.terms if factor % divisor == 0}
            whole = Affine(left.constant // divisor, tuple(even.items()))
            rest = Affine(left.constant % divisor, tuple(each for each in left.terms if each[0] not in even))
            if not rest.terms:
                return whole
        elif right.terms and not right.constant and len(right.terms) == 1:
            ((term, divisor),) = right.terms
            if 0 not in self._range(term):
                for index, times in left.terms:
                    if times % divisor == 0 and (others := self._without(index, term)) is not None:
                        rest = rest.plus(Affine(0, ((index, 1),)), -times)
                        whole = whole.plus(self._monomial(others), times // divisor)
                if rest == Affine(0):
                    return whole
        elif (factor := _multiple(left, right)) is not None and self.bounds(right)[0] > 0:
            return Affine(factor)
        return whole.plus(self.term(Quotient(rest, right)))

    def normal(self, expression: Affine) -> Affine:
        """The same without terms that have one value, or that are made of such."""
        if not self._replaced:
            return expression
        total = Affine(expression.constant)
        for term, factor in expression.terms:
            total = total.plus(self._renewed(term), factor)
        return total

    def _renewed(self, index: int) -> Affine:
        """A term by what is known now."""
        if index not in self._renewals:
            found, term = Affine(0, ((index, 1),)), self._tape[index]
            self._renewals[index] = found  # where S is 4 · (S // 4), S // 4 is made of itself
            if index in self._replaced:
                found = self.normal(self._replaced[index])
            elif not isinstance(term, Symbol):
                left, right = self.normal(term.left), self.normal(term.right)
                if (left, right) != (term.left, term.right):
                    found = self._made(term, left, right)
            self._renewals[index] = found
        return self._renewals[index]

    def guards(self) -> tuple[Guard, ...]:
        """Those of single terms come first: most calls that a plan does not suit fail one of these."""
        tape = self.tape
        found = sorted(
            self.decisions.items(),
            key=lambda item: (len(item[0]) > 1 or not isinstance(tape[item[0][0][0]], Symbol), item[0]),
        )
        return tuple(Guard(Affine(0, terms), low, high) for terms, (low, high) in found)

    def _made(self, term: Product | Quotient, left: Affine, right: Affine) -> Affine:
        if isinstance(term, Quotient):
            return self.quotient(left, right) if right != Affine(0) else Affine(0)
        if left.terms and right.terms:
            return self.product(left, right)
        return Affine(0).plus(left, right.constant) if left.terms else Affine(0).plus(right, left.constant)

    def _replace(self, terms: Terms, value: int) -> None:
        """Σ terms is the value: one of them follows from the others; a dim from others only if all are."""
        for term, factor in sorted(terms, key=lambda item: (item[0] not in self._fixed, -item[0])):
            if abs(factor) == 1:
                rest = tuple(each for each in terms if each[0] != term)
                self._replaced[term] = Affine(value * factor).plus(Affine(0, rest), -factor)
                self._renewals.clear()
                return

    def _degree(self, expression: Affine) -> int:
        return max(len(self._factors[term]) for term, _ in expression.terms)

    def _monomial(self, factors: tuple[int, ...]) -> Affine:
        if not factors:
            return Affine(1)
        *first, last = factors
        found = Affine(0, ((last, 1),))
        if first:
            found = self.term(Product(self._monomial(tuple(first)), found))
            self._factors[found.terms[0][0]] = factors
        return found

    def _without(self, product: int, term: int) -> tuple[int, ...] | None:
        """The factors of a product without those of another; None if it does not have them."""
        left = list(self._factors[product])
        for factor in self._factors[term]:
            if factor not in left:
                return None
            left.remove(factor)
        return tuple(left)

    def _range(self, term: int) -> range:
        low, high = self._bounds[term]
        if math.isinf(low) or math.isinf(high):
            return range(1 if low >= 1 else -1, 1 << 62)
        return range(int(low), int(high) + 1)

    def _bounds_of(self, term: Term) -> Interval:
        if isinstance(term, Symbol):
            return ANY
        (a, b), (c, d) = self.bounds(term.left), self.bounds(term.right)
        if any(map(math.isinf, (a, b, c, d))):
            return ANY if min(a, c) < 0 else (0, math.inf)
        if isinstance(term, Product):
            corners = [x * y for x in (a, b) for y in (c, d)]
        elif c > 0:
            corners = [x // y for x in (a, b) for y in (c, d)]
        else:
            return ANY
        return min(corners), max(corners)

    def _is_of_dims(self, term: Term) -> bool:
        if isinstance(term, Symbol):
            return term.is_dim
        return self.is_of_dims(term.left) and self.is_of_dims(term.right)


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


def _multiple(left: Affine, right: Affine) -> int | None:
    """How many times one expression is another."""
    if len(left.terms) != len(right.terms):
        return None
    factor, rest = divmod(left.terms[0][1], right.terms[0][1])
    return factor if not rest and left == Affine(0).plus(right, factor) else None


class LiveInt:
    """An affine expression of live integers that notes every decision taken on it."""

    __slots__ = ("expression", "trace")

    def __init__(self, expression: Affine, trace: Trace) -> None:
        self.expression = expression
        self.trace = trace

    def __repr__(self) -> str:
        return f"LiveInt({self._value()})"

    def __str__(self) -> str:
        return f"{self._value()}{LIVE}"

    def _value(self) -> int:
        return self.expression.evaluate(self.trace.numbers)

    def _with(self, expression: Affine) -> AnyInt:
        trace = self.trace
        if trace._replaced:
            expression = trace.normal(expression)
        constant, terms = expression
        if not -WIDTH_MAX <= constant < WIDTH_MAX:
            trace.check(constant)
        for _, factor in terms:
            if not -WIDTH_MAX <= factor < WIDTH_MAX:
                trace.check(factor)
        return LiveInt(expression, trace) if terms else constant

    @property
    def is_of_dims(self) -> bool:
        """Whether dims of inputs alone determine it."""
        return self.trace.is_of_dims(self.trace.normal(self.expression))

    @property
    def most(self) -> int | None:
        """The largest value that the decisions so far leave; None: any."""
        high = self.trace.bounds(self.trace.normal(self.expression))[1]
        return None if math.isinf(high) else int(high)

    @property
    def least(self) -> float:
        """The smallest value that the decisions so far leave."""
        return self.trace.bounds(self.trace.normal(self.expression))[0]

    def like(self, *candidates: AnyInt) -> AnyInt:
        """A candidate of its value that only dims determine: the plan holds while they are equal."""
        trace = self.trace
        for each in candidates:
            if isinstance(each, LiveInt) and each.is_of_dims and each._value() == self._value():
                difference = trace.normal(self.expression.plus(each.expression, -1))
                if difference.terms:
                    trace.decide(difference, 0, 0)
                return each
        return self

    def __int__(self) -> int:
        return self._pinned()

    def __index__(self) -> int:
        return self._pinned()

    def __float__(self) -> float:
        return float(self._pinned())

    def __hash__(self) -> int:
        return hash(self._pinned())

    def _pinned(self) -> int:
        value = self._value()
        expression = self.trace.normal(self.expression)
        if expression.terms:
            self.trace.pin(expression, value)
        return value

    def __neg__(self) -> AnyInt:
        return self._with(self.expression.times(-1))

    def __add__(self, other: AnyInt) -> AnyInt:
        if isinstance(other, int):
            constant, terms = self.expression
            return self._with(Affine(constant + other, terms))
        return self._with(self.expression.plus(affine(other)))

    __radd__ = __add__

    def __sub__(self, other: AnyInt) -> AnyInt:
        return self._with(self.expression.plus(affine(other), -1))

    def __rsub__(self, other: AnyInt) -> AnyInt:
        return self._with(affine(other).plus(self.expression, -1))

    def __mul__(self, other: AnyInt) -> AnyInt:
        if isinstance(other, LiveInt):
            return self._with(self.trace.product(self.expression, other.expression))
        if isinstance(other, float):
            return float(self) * other  # type: ignore[return-value]
        if other == 1 and not self.trace._replaced:
            return self
        return self._with(self.expression.times(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: AnyInt) -> AnyInt:
        if other == 0:  # a decision, so that no plan divides by zero
            raise RequirementError("floordiv by zero")
        return self._quotient(self, other)

    def __rfloordiv__(self, other: AnyInt) -> AnyInt:
        if self == 0:
            raise RequirementError("floordiv by zero")
        return self._quotient(other, self)

    def _quotient(self, left: AnyInt, right: AnyInt) -> AnyInt:
        normal = self.trace.normal
        return self._with(self.trace.quotient(normal(affine(left)), normal(affine(right))))

    def __mod__(self, other: AnyInt) -> AnyInt:
        return self - self // other * other

    def __rmod__(self, other: AnyInt) -> AnyInt:
        return other - other // self * self

    def __divmod__(self, other: AnyInt) -> tuple[AnyInt, AnyInt]:
        whole = self // other
        return whole, self - whole * other

    def __truediv__(self, other: float) -> float:
        return float(self) / other

    def __rtruediv__(self, other: float) -> float:
        return other / float(self)

    def __pow__(self, power: float) -> float:
        return float(int(self) ** power)

    def __lshift__(self, count: int) -> AnyInt:
        return self * (1 << count)

    def __rlshift__(self, number: int) -> int:
        return number << int(self)

    def bit_length(self) -> int:
        """Of a number of at least 0: plans hold for all numbers of as many bits."""
        bits = 0
        while self >= 1 << bits:
            bits += 1
        return bits

    def __le__(self, other: AnyInt) -> bool:
        if isinstance(other, float):
            if math.isinf(other):
                return other > 0
            other = math.floor(other)
        if isinstance(other, int):
            return self._is_at_most(self.expression, other)
        return self._is_at_most(self.expression.plus(other.expression, -1), 0)

    def _is_at_most(self, expression: Affine, limit: int) -> bool:
        trace = self.trace
        expression = trace.normal(expression)
        low, high = trace.bounds(expression)
        if high <= limit:
            return True
        if low > limit:
            return False
        result = expression.evaluate(trace.numbers) <= limit
        low, high = (-math.inf, limit) if result else (limit + 1, math.inf)
        trace.decide(expression, low, high)
        return result

    def __lt__(self, other: AnyInt) -> bool:
        if isinstance(other, float):
            if math.isinf(other):
                return other > 0
            other = math.ceil(other)
        return self <= other - 1

    def __gt__(self, other: AnyInt) -> bool:
        return not self <= other

    def __ge__(self, other: AnyInt) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            if not other.is_integer():
                return False
            other = int(other)
        if not isinstance(other, (int, LiveInt)):
            return NotImplemented
        return self <= other <= self

    def __bool__(self) -> bool:
        return self != 0


AnyInt: TypeAlias = int | LiveInt
LiveShape: TypeAlias = tuple[AnyInt, ...]


def numel(shape: LiveShape) -> AnyInt:
    """The number of elements of a tensor at its live shape."""
    return math.prod(shape)


def affine(value: AnyInt) -> Affine:
    """The expression of a live or plain integer."""
    return value.expression if isinstance(value, LiveInt) else Affine(value)


def most(value: AnyInt) -> int:
    """The largest value that a plan is for, by the decisions so far; for limits that must hold at all."""
    if not isinstance(value, LiveInt):
        return value
    largest = value.most
    return int(value) if largest is None else largest


def typical(value: AnyInt, least: int = 16, step: int = 2) -> int:
    """A number by which to choose kernels. For a live one, the middle of its bucket, so that few plans suit
    all; buckets end at `least`, `least` · step, `least` · step², ... From 256 on, buckets that double are
    halved: with whole ones, products of 401 to 512 rows took 8 to 10 % longer than with tiles of their own
    (Llama 1B, H200)."""
    if not isinstance(value, LiveInt):
        return value
    before, size = 0, least
    while value > size:
        before, size = size, size * step
    halfway = (before + size) // 2
    if step > 2 or before < 256:
        return size if size == least else halfway
    return (before + halfway) // 2 if value <= halfway else (halfway + size) // 2


def divides(number: int, value: AnyInt) -> bool:
    """Whether a number divides all values that a plan is for. Takes no decision."""
    rest = value % number
    return isinstance(rest, int) and rest == 0


def settled(value: AnyInt) -> AnyInt:
    """A size or a grid: it may follow dims of inputs, but no other live integer, since a loop advances these
    without the host. One that equals a dim is that dim from then on: files pass sizes as integers, too."""
    if isinstance(value, LiveInt) and not value.is_of_dims:
        value = value.like(*value.trace.dims())
    return value if isinstance(value, LiveInt) and value.is_of_dims else int(value)


def bucket(value: AnyInt, least: int = 1) -> int:
    """The smallest of `least`, 2 · least, 4 · least, ... that is at least `value`.

    For grids that grow with a live integer: the plan then holds for the whole bucket, not one value.
    """
    size = least
    while value > size:
        size *= 2
    return size


def parts_of(count: AnyInt, size: int) -> Iterator[tuple[int, AnyInt]]:
    """The starts of parts of `size`, each with 1 if the count reaches the part, else 0. A plan for live
    counts has parts up to a power of two times the size; grids of 0 leave out those past the end."""
    reach = bucket(count, size) if isinstance(count, LiveInt) else count
    for start in range(0, min(reach, most(count)), size):
        is_sure = not isinstance(count, LiveInt) or start < count.least
        yield start, 1 if is_sure else 1 + (count - start - 1) // reach  # the quotient is -1 or 0
