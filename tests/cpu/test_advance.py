"""A plan from step to step: what grows, by how much, and how long it holds, against plans filled anew."""

from __future__ import annotations

import pytest
from sketch import Sketch, plan_at

from pteron.graph import SymInt
from pteron.plan import Advance, Plan

ROWS = 23


def sliced(*calls: tuple[str, int], length: int = 2) -> tuple[Plan, SymInt]:
    """The plan of rows [s, s + length) of a table at p = 4, where s is made of p by these calls."""
    sketch = Sketch()
    p, table, out = sketch.symbol(), sketch.tensor(ROWS, 5), sketch.tensor(length, 5)
    start = p
    for name, number in calls:
        made = sketch.symbol()
        sketch.node(name, start, number, made)
        start = made
    end = sketch.symbol()
    sketch.node("add", start, length, end)
    sketch.node("aten.slice_copy.Tensor", table, 0, start, end, 1, out)
    return plan_at(sketch.prepare([p, table], [out]), values={p: 4}), p


def filled(plan: Plan, numbers: list[int]) -> list[bytes]:
    return [block.fill(numbers) for block in plan.blocks]


def numbers_at(plan: Plan, p: SymInt, value: int) -> list[int]:
    numbers = plan.numbers({p.id: value})
    assert numbers is not None
    return numbers


@pytest.mark.parametrize("growth", [1, 3, -1])
@pytest.mark.parametrize("calls", [(), (("mul", 2), ("sub", 1)), (("mul", -1), ("add", 20))])
def test_words_grow_as_plans_are_filled(calls: tuple[tuple[str, int], ...], growth: int) -> None:
    plan, p = sliced(*calls)
    advance = Advance.of(plan, {p.id: growth})
    assert advance is not None
    assert advance.words
    numbers = numbers_at(plan, p, 4)
    steps = advance.steps(numbers, 1000)
    assert 1 < steps < 30
    blocks = [bytearray(data) for data in filled(plan, numbers)]
    for step in range(1, steps):
        for block, offset, by in advance.words:
            word = int.from_bytes(blocks[block][offset : offset + 4], "little") + by
            blocks[block][offset : offset + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")
        assert list(map(bytes, blocks)) == filled(plan, numbers_at(plan, p, 4 + step * growth))
        assert advance.after(numbers, step) == numbers_at(plan, p, 4 + step * growth)
    assert plan.numbers({p.id: 4 + steps * growth}) is None
    assert advance.steps(numbers, 2) == 2


def test_what_does_not_grow_holds_for_ever() -> None:
    plan, p = sliced()
    advance = Advance.of(plan, {})
    assert advance is not None
    assert not advance.words
    assert advance.steps(numbers_at(plan, p, 4), 1000) == 1000


@pytest.mark.parametrize("call", [("floordiv", 2), ("floordiv", -3)])
def test_an_uneven_parameter_stays_with_the_host(call: tuple[str, int]) -> None:
    plan, p = sliced(call, ("add", 10))
    assert Advance.of(plan, {p.id: 1}) is None
    assert Advance.of(plan, {}) is not None


def test_an_uneven_guard_ends_the_steps() -> None:
    """A shape of p // 4 rows: no parameter follows p, but the plan is right for four values of it alone."""
    sketch = Sketch()
    p, quarter, table, out = sketch.symbol(), sketch.symbol(), sketch.tensor(ROWS, 5), sketch.tensor(ROWS, 5)
    sketch.node("floordiv", p, 4, quarter)
    sketch.node("aten.slice_copy.Tensor", table, 0, 0, quarter, 1, out)
    plan = plan_at(sketch.prepare([p, table], [out]), values={p: 9})
    advance = Advance.of(plan, {p.id: 1})
    assert advance is not None
    assert not advance.is_even
    assert [advance.steps(numbers_at(plan, p, value), 100) for value in (8, 9, 11)] == [4, 3, 1]
