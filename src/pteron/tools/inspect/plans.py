"""A method and the shapes of its inputs -> the plans of its delegates, and what their launches do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pteron.errors import PteronError
from pteron.format.records import DelegateCall
from pteron.graph import Shape
from pteron.plan import Compiled, Plan, Shapes
from pteron.runtime.specs import ValueSpec
from pteron.tools.inputs import LiveSize, live_shapes
from pteron.tools.inspect.program import ExaminedMethod
from pteron.tools.profile.work import LaunchWork, work_of


@dataclass(frozen=True)
class DelegatePlan:
    """A delegate at live shapes and integers; `notes` say which shapes are not known. What cannot be planned
    is an error where the plan is read."""

    compiled: Compiled
    shapes: Shapes
    values: Mapping[int, int]
    notes: tuple[str, ...]

    @cached_property
    def plan(self) -> Plan:
        return self.compiled.plan(self.shapes, self.values)

    @cached_property
    def works(self) -> list[LaunchWork]:
        return work_of(self.compiled, self.shapes, self.values)


def shapes_by_title(specs: Sequence[ValueSpec], sizes: Sequence[LiveSize]) -> dict[str, list[Shape]]:
    """The input shapes of each plan, by its title."""
    if sizes:
        return {f"at {', '.join(map(str, sizes))}": live_shapes(specs, sizes)}
    plans = {"at the maximum shapes": live_shapes(specs, ())}
    if any(any(spec.dynamic) for spec in specs):
        plans["at the smallest shapes"] = [spec.shape_least for spec in specs]
    return plans


def plan_delegate(
    method: ExaminedMethod, index: int, compiled: Compiled, given: Sequence[Shape], integers: int
) -> DelegatePlan:
    """A delegate's plan for inputs of the method of these shapes; all live integers are `integers`."""
    shapes, notes = _delegate_shapes(method, index, compiled, given, integers)
    return DelegatePlan(compiled, shapes, _values(compiled, integers), tuple(notes))


def _values(compiled: Compiled, integers: int) -> dict[int, int]:
    return {source.symbol: integers for source in compiled.executable.sources}


def _delegate_shapes(
    method: ExaminedMethod, index: int, compiled: Compiled, given: Sequence[Shape], integers: int
) -> tuple[Shapes, list[str]]:
    """The shapes of a delegate's inputs, and notes on unknown ones."""
    record = method.record
    known: dict[int, Shape] = dict(zip(record.inputs, given, strict=True))
    for call in record.instructions:
        called = method.delegates[call.delegate].compiled if isinstance(call, DelegateCall) else None
        if called is None or not isinstance(call, DelegateCall):
            continue
        live, notes = _shapes_of_call(call, called, known)
        if call.delegate == index:
            return live, notes
        outputs = call.args[len(called.prepared.graph.inputs) :]
        try:
            walked = called.shapes(live, _values(called, integers)) if not notes else {}
        except PteronError:  # shown with its own plan
            walked = {}
        for id, value in zip(outputs, called.prepared.graph.outputs, strict=False):
            if value.id in walked:
                known[id] = walked[value.id]
    return compiled.shapes_max, ["no instruction calls this delegate"]


def _shapes_of_call(
    call: DelegateCall, compiled: Compiled, known: Mapping[int, Shape]
) -> tuple[Shapes, list[str]]:
    shapes: list[Shape | None] = []
    notes = []
    for position, most in enumerate(compiled.shapes_max):
        live = known.get(call.args[position]) if position < len(call.args) else None
        if live is None and most is not None:
            notes.append(f"input {position} comes from the host: planned at its maximum shape")
        shapes.append(most if live is None or most is None else live)
    return tuple(shapes), notes
