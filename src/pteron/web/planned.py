"""A graph -> an executable with plans made ahead, for the live shapes and live integers that a site
serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pteron.errors import InputError, MisfitError
from pteron.plan import Advance, Compiled, Executable, Plan, Shapes

PLANS_MAX = 64  # for one set of shapes: a live integer that needs more is better a shape
_INTEGER_MAX = (1 << 31) - 1


def plan_ahead(
    compiled: Compiled, shapes: Iterable[Shapes], ends: Mapping[Shapes, int] | None = None
) -> Executable:
    """The executable of a graph with plans for these shapes of its inputs. A live integer may have any value
    from 0 on that the graph takes, below `ends` of the shapes."""
    plans = {each: plans_for(compiled, each, (ends or {}).get(each)) for each in dict.fromkeys(shapes)}
    return replace(compiled.executable, plans=plans)


def plans_for(compiled: Compiled, shapes: Shapes, end: int | None = None) -> list[Plan]:
    """Plans for one set of shapes, which together serve all values of the live integers. With several live
    integers, all have the same value: guards say which other values a plan serves."""
    symbols = [source.symbol for source in compiled.executable.sources]
    plans: list[Plan] = []
    value, end = 0, _INTEGER_MAX if end is None else end
    while value < end and len(plans) < PLANS_MAX:
        values = dict.fromkeys(symbols, value)
        try:
            plan = compiled.plan(shapes, values)
        except MisfitError as error:
            if not plans:
                raise InputError(str(error)) from error
            break  # larger values do not fit into the graph's tensors
        plans.append(plan)
        if not symbols:
            break
        value += _steps(plan, values, end - value)
    return plans


def _steps(plan: Plan, values: Mapping[int, int], most: int) -> int:
    """For how many values in a row a plan holds."""
    numbers, advance = plan.numbers(values), Advance.of(plan, dict.fromkeys(values, 1))
    assert numbers is not None  # it was made for them
    if advance is not None and advance.is_even:
        return max(1, advance.steps(numbers, most))
    for step in range(1, min(most, PLANS_MAX)):
        if plan.numbers({id: value + step for id, value in values.items()}) is None:
            return step
    return min(most, PLANS_MAX)
