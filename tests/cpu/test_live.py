"""Live integers: arithmetic is exact, and guards hold only where every decision would be the same."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from pteron.ops.live import AnyInt, LiveInt, Trace, affine, bucket, most, parts_of, typical
from pteron.ops.requirement import RequirementError
from pteron.ops.terms import dim_id, evaluate

ARITHMETIC: tuple[Callable[[AnyInt, AnyInt], AnyInt], ...] = (operator.add, operator.sub, operator.mul)
COMPARISONS: tuple[Callable[[AnyInt, AnyInt], bool], ...]
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def live(trace: Trace, id: int) -> LiveInt:
    return trace.symbol(id)


def value_at(value: AnyInt, values: dict[int, int]) -> int:
    """What an expression is where the live integers have these values."""
    return affine(value).evaluate(evaluate(value.trace.tape, values) if isinstance(value, LiveInt) else [])


def holds_at(trace: Trace, values: dict[int, int]) -> bool:
    numbers = evaluate(trace.tape, values)
    return all(guard.holds(numbers) for guard in trace.guards())


# Arithmetic -------------------------------------------------------------------------------------


def draw_expression(source: random.Random, leaves: list[AnyInt], depth: int) -> AnyInt:
    """A random expression of the leaves; drawing twice from equal sources gives the same one."""
    if depth == 0:
        return source.choice([*leaves, source.randint(-9, 9)])
    left = draw_expression(source, leaves, depth - 1)
    right = draw_expression(source, leaves, depth - 1)
    if source.random() < 0.2:
        return left // source.choice((1, 2, 3, 7, -2))
    return source.choice(ARITHMETIC)(left, right)


@pytest.mark.parametrize("seed", range(20))
def test_expressions_follow_their_symbols(seed: int) -> None:
    trace = Trace({0: 5, 1: 3})
    symbolic = draw_expression(random.Random(seed), [live(trace, 0), live(trace, 1)], depth=3)
    for a, b in [(5, 3), (0, 0), (-7, 2), (100, -100), (1, 1)]:
        plain = draw_expression(random.Random(seed), [a, b], depth=3)
        assert value_at(symbolic, {0: a, 1: b}) == plain
    assert trace.guards() == ()  # arithmetic decides nothing


def test_what_cancels_is_a_plain_number() -> None:
    trace = Trace({0: 5, 1: 3})
    p, q = live(trace, 0), live(trace, 1)
    assert (p + 7) - p == 7
    assert isinstance((p + q) - (q + p), int)
    assert isinstance(3 * p - p - p * 2, int)
    assert trace.guards() == ()


def test_a_number_on_the_left() -> None:
    p = live(Trace({0: 5}), 0)
    assert value_at(10 - p, {0: 3}) == 7
    assert value_at(4 * p, {0: 3}) == 12
    assert value_at(-p, {0: 3}) == -3
    assert value_at(10 // p, {0: 3}) == 3


# Guards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("bound", [-3, 0, 4])
def test_a_comparison_holds_where_its_answer_is_the_same(
    compare: Callable[[AnyInt, AnyInt], bool], bound: int
) -> None:
    for value in range(-6, 8):
        trace = Trace({0: value})
        answer = compare(live(trace, 0), bound)
        assert answer == compare(value, bound)
        for other in range(-6, 8):
            holds = holds_at(trace, {0: other})
            if holds:
                assert compare(other, bound) == answer
            elif compare not in (operator.eq, operator.ne):  # those two may note which side they are on
                assert compare(other, bound) != answer


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("bound", [2.0, 2.5, -0.5, math.inf, -math.inf])
def test_a_comparison_with_a_float(compare: Callable[[Any, Any], bool], bound: float) -> None:
    for value in range(-1, 5):
        trace = Trace({0: value})
        answer = compare(live(trace, 0), bound)
        assert answer is compare(value, bound)
        held = [other for other in range(-3, 8) if holds_at(trace, {0: other})]
        assert all(compare(other, bound) is answer for other in held)
        assert len(held) == 11 or math.isfinite(bound)


def test_a_number_used_as_such_pins_the_value() -> None:
    trace = Trace({0: 5})
    assert int(live(trace, 0) + 2) == 7
    assert list(range(9))[live(trace, 0)] == 5
    assert len(trace.guards()) == 1
    assert holds_at(trace, {0: 5})
    assert not holds_at(trace, {0: 4})


def test_guards_of_one_expression_are_one_interval() -> None:
    trace = Trace({0: 5})
    p = live(trace, 0)
    assert p >= 0
    assert p + 3 <= 12
    assert p < 100
    (guard,) = trace.guards()
    assert (guard.low, guard.high) == (0, 9)


def run_program(source: random.Random, leaves: list[AnyInt]) -> list[object]:
    """Random decisions on random expressions: what a planner does with live integers."""
    outcomes: list[object] = []
    for _ in range(4):
        left, right = (draw_expression(source, leaves, depth=2) for _ in range(2))
        kind = source.random()
        if kind < 0.8:
            outcomes.append(bool(source.choice(COMPARISONS)(left, right)))
        elif kind < 0.9:
            outcomes.append(bucket(left))
        else:
            outcomes.append(int(left))
    return outcomes


@pytest.mark.parametrize("seed", range(25))
def test_guards_are_sound(seed: int) -> None:
    """For all values that satisfy the guards, the program takes the same decisions."""
    values = random.Random(seed + 1000)
    start = {0: values.randint(-9, 9), 1: values.randint(-9, 9)}
    trace = Trace(dict(start))
    outcomes = run_program(random.Random(seed), [live(trace, 0), live(trace, 1)])
    assert outcomes == run_program(random.Random(seed), [start[0], start[1]])
    assert holds_at(trace, start)
    for a in range(-9, 10):
        for b in range(-9, 10):
            if holds_at(trace, {0: a, 1: b}):
                assert run_program(random.Random(seed), [a, b]) == outcomes


# Buckets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 0, 1, 2, 3, 4, 5, 63, 64, 65, 1000])
def test_a_bucket_holds_for_all_its_values(value: int) -> None:
    trace = Trace({0: value})
    size = bucket(live(trace, 0))
    assert size == bucket(value)
    assert size >= value
    assert size & (size - 1) == 0
    for other in range(-2, 1100):
        holds = holds_at(trace, {0: other})
        assert holds == (bucket(other) == size)


@pytest.mark.parametrize(
    ("value", "step", "found"),
    [
        (1, 2, 16), (16, 2, 16), (17, 2, 24), (32, 2, 24), (33, 2, 48), (256, 2, 192),
        (257, 2, 320), (384, 2, 320), (385, 2, 448), (512, 2, 448), (513, 2, 640), (300, 4, 640),
    ],
)  # fmt: skip
def test_a_kernel_is_chosen_by_the_middle_of_a_bucket(value: int, step: int, found: int) -> None:
    trace = Trace({0: value})
    assert typical(live(trace, 0), step=step) == found
    assert typical(value, step=step) == value
    for other in range(1100):
        holds = holds_at(trace, {0: other})
        assert holds == (typical(live(Trace({0: other}), 0), step=step) == found)


@pytest.mark.parametrize("bound", [-3.5, -3.0, 0.5, 2.0, 2.5, math.inf])
@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
def test_floats_are_compared_with(compare: Callable[[Any, float], bool], bound: float) -> None:
    for value in range(-6, 6):
        if not (math.isinf(bound) and compare in (operator.lt, operator.ge)):
            assert compare(live(Trace({0: value}), 0), bound) == compare(value, bound)


def test_each_dim_has_its_number() -> None:
    numbers = {dim_id(tensor, dim) for tensor in range(40) for dim in range(32)}
    assert len(numbers) == 40 * 32
    assert max(numbers) < 0  # those of values are not


# Size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 40, 65, 99])
def test_parts_of_a_live_count(count: int) -> None:
    """One plan's parts suit all counts of its bucket: those that a count reaches are there, no others are."""
    trace = Trace({0: count})
    parts = list(parts_of(trace.symbol(0, 1, 99), 8))
    held = [number for number in range(1, 100) if holds_at(trace, {0: number})]
    assert count in held
    assert len(held) >= max(8, count // 2 - 14)
    for number in held:
        there = [start for start, is_there in parts if value_at(is_there, {0: number})]
        assert there == list(range(0, number, 8))
        assert all(value_at(is_there, {0: number}) in (0, 1) for _, is_there in parts)
    assert all(start < 99 for start, _ in parts)  # memory ends with the largest count
    assert list(parts_of(17, 8)) == [(0, 1), (8, 1), (16, 1)]


def test_bounds_follow_later_decisions() -> None:
    trace = Trace({-1: 3, -2: 10})
    rows, columns = trace.symbol(-1, 2, 64), trace.symbol(-2, 2, 512)
    area = rows * columns
    tiles = -(-area // 8)
    assert (most(area), most(tiles)) == (64 * 512, 64 * 64)
    assert rows <= 4
    assert columns <= 16
    assert (most(area), most(tiles), most(rows * columns)) == (64, 8, 64)
    guards = trace.guards()
    assert tiles <= 8
    assert trace.guards() == guards


def test_a_pinned_dim_is_noted() -> None:
    trace = Trace({-5: 12, 3: 4})
    dim, integer = trace.symbol(-5, 2, 99), trace.symbol(3)
    assert dim > 8
    assert not trace.pins
    assert int(integer) == 4  # no dim
    assert not trace.pins
    assert int(dim * 2 + 1) == 25
    assert list(trace.pins) == [-5]


def test_a_dim_of_a_pinned_quotient_is_noted() -> None:
    trace = Trace({-5: 12, -6: 7})
    rows, columns = trace.symbol(-5, 2, 99), trace.symbol(-6, 2, 99)
    assert int(-(-rows * columns // 64)) == 2
    assert sorted(trace.pins) == [-6, -5]


def test_products_of_products_are_evaluated_once_each() -> None:
    """Twenty squarings used to take a million steps: every product was evaluated anew for each use."""
    trace = Trace({0: 1})
    x: AnyInt = live(trace, 0)
    for _ in range(2000):
        x = x * x
    assert x == 1
    assert len(trace.tape) == 2001
    assert holds_at(trace, {0: 1})


@pytest.mark.parametrize(
    "grow",
    [
        lambda x: x * x,
        lambda x: x + x,
        lambda x: x * (1 << 40),
        lambda x: x + (1 << 62),
        lambda x: x - (1 << 62),
    ],
)
def test_what_leaves_64_bits_is_refused(grow: Callable[[AnyInt], AnyInt]) -> None:
    def grow_on(x: AnyInt) -> None:
        for _ in range(100):
            x = grow(x)

    with pytest.raises(RequirementError, match="does not fit into 64"):
        grow_on(live(Trace({0: 3}), 0))


def test_what_leaves_64_bits_at_other_values() -> None:
    trace = Trace({0: 1})
    x = live(trace, 0) * live(trace, 0)
    assert value_at(x, {0: 3}) == 9
    with pytest.raises(OverflowError):
        value_at(x, {0: 1 << 40})


def test_a_divisor_that_was_decided_on_is_never_zero() -> None:
    trace = Trace({0: 4, 1: 2})
    p, q = live(trace, 0), live(trace, 1)
    assert q != 0
    quotient = p // q
    assert value_at(quotient, {0: 9, 1: 2}) == 4
    assert not holds_at(trace, {0: 9, 1: 0})
