"""Live dims: few plans suit all lengths, and a plan found for a length equals the plan made for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from kernel_fixtures import evaluated

import pteron
from pteron.format.source import open_bytes
from pteron.ops import Target
from pteron.ops.terms import dim_id
from pteron.passes import prepare
from pteron.plan import Compiled, Plan
from pteron.tools.inspect.program import examine_program
from pteron.tools.local_adapter import LocalAdapter

STORIES = Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte"
TARGETS = {
    "software": Target(),
    "GPU": Target(is_cpu=False, workgroup_bytes_max=32768),
    "GPU, subgroups": Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152),
}


@pytest.fixture(params=TARGETS)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    target = TARGETS[request.param]
    program = examine_program(open_bytes(STORIES), local=LocalAdapter(target, "a GPU"))
    (delegate,) = (each for method in program.methods for each in method.delegates)
    assert delegate.compiled is not None
    return Compiled(prepare(delegate.compiled.prepared.graph), target)


class Plans:
    """Plans for lengths, as a cache finds them."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.kept: list[Plan] = []
        self.tokens = compiled.prepared.graph.inputs[0].id

    def made(self, length: int, start: int) -> Plan:
        return self.compiled.plan(((1, length), (1,)), self.known(length, start))

    def known(self, length: int, start: int) -> dict[Any, int]:
        values = {source.symbol: start for source in self.compiled.prepared.sources}
        return {**values, dim_id(self.tokens, 1): length}

    def find(self, length: int, start: int) -> Plan | None:
        known = self.known(length, start)
        return next((plan for plan in self.kept if plan.numbers(known) is not None), None)


def test_few_plans_for_all_lengths(compiled: Compiled) -> None:
    plans = Plans(compiled)
    for length in range(2, 129):
        if plans.find(length, 0) is None:
            plans.kept.append(plans.made(length, 0))
    assert len(plans.kept) <= 11


def test_a_found_plan_equals_the_plan_made(compiled: Compiled) -> None:
    plans, drawn = Plans(compiled), random.Random(0)
    for _ in range(30):
        length, start = drawn.randint(2, 128), drawn.choice((0, 0, 5, 100))
        made, found = plans.made(length, start), plans.find(length, start)
        if found is None:
            plans.kept.append(made)
        else:
            known = plans.known(length, start)
            assert list(evaluated(found, known)) == list(evaluated(made, known))
