"""Fixtures of tests/gpu that look at kernels while operators are tested.

With --all, an operator that is planned for this device is planned for every other kind of device too, and
Dawn compiles the kernels if it is installed: operators have more variants in tests than in programs. With
PTERON_MEASURE=1 in the environment, all kernels run with counts, against what they state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from dawn_compiler import DawnCompiler, DawnMissingError
from measure import Measuring
from targets import Call, modules_at

from pteron import Device
from pteron.gpu import Recording
from pteron.gpu.recording import Filling
from pteron.graph import Graph
from pteron.ops.terms import Affine, Symbol
from pteron.plan import Compiled, Launch, Plan, Shapes
from pteron.plan.collect import Collector
from pteron.plan.planner import Planning
from pteron.runtime.plan_cache import PlanCache


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    """Sessions made in the test run instrumented kernels, and are checked after each run."""
    made = Measuring()
    made.start(monkeypatch)
    return made


@pytest.fixture(autouse=True)
def _measured(request: pytest.FixtureRequest) -> None:
    if os.environ.get("PTERON_MEASURE") and request.path.parent.name == "gpu":
        request.getfixturevalue("measuring")


@pytest.fixture(autouse=True)
def _found_plans_equal_made_ones(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was made at other sizes and is found for a call is the plan that would be made for it."""
    if request.path.parent.name == "gpu":
        find = PlanCache.find
        seen: WeakKeyDictionary[Recording, set[object]] = WeakKeyDictionary()

        def checked(cache: PlanCache, *arguments: Any, **options: Any) -> tuple[Recording, list[int]]:
            made = cache.made
            recording, numbers = find(cache, *arguments, **options)
            known = seen.setdefault(recording, set())
            if cache.made == made and tuple(numbers) not in known:
                check_found(cache, recording.plan, numbers, *arguments)
            known.add(tuple(numbers))
            return recording, numbers

        monkeypatch.setattr(PlanCache, "find", checked)


def check_found(
    cache: PlanCache, plan: Plan, numbers: list[int], shapes: Shapes, values: Mapping[int, int]
) -> None:
    terms = zip(plan.tape, numbers, strict=True)
    symbols = {term.id: number for term, number in terms if isinstance(term, Symbol)}
    if cache._compiled is not None and any(id < 0 for id in symbols):
        made = cache._compiled.plan(shapes, {**values, **symbols})
        assert list(evaluated(plan, symbols)) == list(evaluated(made, symbols))


def evaluated(plan: Plan, values: Mapping[int, int]) -> Iterator[object]:
    """All that a device and a caller see of a plan."""
    numbers = plan.numbers(values)
    assert numbers is not None
    filling = Filling.of(plan)
    blocks = filling.blocks(numbers, len(plan.blocks))
    for launch in plan.launches:
        block = b"" if launch.block is None else blocks[256 * launch.block : 256 * launch.block + 256]
        starts = [(name, evaluate_at(start, numbers)) for name, start in launch.starts]
        yield launch.module.source, launch.buffers, block, launch.grid(numbers), starts
    yield {id: plan.shape(id, numbers) for id in plan.shapes}
    yield {id: number.evaluate(numbers) for id, number in plan.integers.items()}


def evaluate_at(value: int | Affine, numbers: Sequence[int]) -> int:
    return value.evaluate(numbers) if isinstance(value, Affine) else value


@pytest.fixture(autouse=True)
def _in_browsers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After a test, a complaint of Dawn's about any of its kernels is an error of the test."""
    is_wanted = request.path.parent.name == "gpu" and request.config.getoption("--all")
    try:
        dawn = DawnCompiler.shared() if is_wanted else None
    except DawnMissingError:
        dawn = None
    if dawn is None:
        yield
        return
    walk = Compiled.walk
    planned: dict[Graph, list[Call]] = {}

    def noting_walk(
        compiled: Compiled, shapes: Shapes, values: Mapping[int, int], *, only_shapes: bool = False
    ) -> Planning:
        planning = walk(compiled, shapes, values, only_shapes=only_shapes)
        graph = compiled.prepared.graph
        if not only_shapes and len(graph.nodes) == 1 and compiled.target == Device.open().target:
            planned.setdefault(graph, []).append((shapes, dict(values)))
        return planning

    monkeypatch.setattr(Compiled, "walk", noting_walk)
    yield
    monkeypatch.undo()
    planned_modules = (pair for graph, calls in planned.items() for pair in modules_at(graph, calls))
    complaints = [
        complaint
        for target, module in planned_modules
        for complaint in (*dawn.complaints(module), *dawn.exceeded(module, target))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """The launches of the last plan."""
    found: list[Launch] = []
    finish = Collector.finish

    def noting(collector: Collector, *rest: Any) -> Plan:
        plan = finish(collector, *rest)
        found[:] = plan.launches
        return plan

    monkeypatch.setattr(Collector, "finish", noting)
    return found
