"""Runs of sessions whose kernels are instrumented: what each launch did, against what its kernel states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from instrument import instrument

from pteron.gpu import Recording
from pteron.ops import Dispatch
from pteron.ops.live import LiveInt
from pteron.plan import Compiled, Launch, Plan, ScratchRef, Shapes
from pteron.plan.collect import Collector
from pteron.runtime.plan_cache import PlanCache
from pteron.runtime.session import Session


@dataclass
class Measuring:
    """Takes its place between sessions and their plans; `kernels` are those that ran."""

    dispatches: list[Dispatch] = field(default_factory=list)  # of the last plan
    planned: list[tuple[Plan, list[Dispatch]]] = field(default_factory=list)
    ran: tuple[Recording, Sequence[int]] | None = None
    kernels: set[str] = field(default_factory=set)
    session: Session | None = None  # that runs

    def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Instrument what is planned from now on, and check it after every run."""
        plan, plan_at_maximum = Compiled.plan, Compiled.plan_at_maximum
        find, run, finish = PlanCache.find, Session.run, Collector.finish

        def instrumented_plan(compiled: Compiled, shapes: Shapes, values: Mapping[int, int]) -> Plan:
            return self._instrumented(plan(compiled, shapes, values))

        def instrumented_at_maximum(compiled: Compiled) -> tuple[Plan, dict[int, int]] | None:
            made = plan_at_maximum(compiled)
            return (self._instrumented(made[0]), made[1]) if made else None

        def noting_finish(collector: Collector, *rest: Any) -> Plan:
            self.dispatches = [collected.dispatch for collected in collector.launches]
            return finish(collector, *rest)

        def noting_find(*arguments: Any, **options: Any) -> tuple[Recording, list[int]]:
            self.ran = find(*arguments, **options)
            self._clear(self.ran[0])
            return self.ran

        def checked_run(session: Session, *arguments: Any) -> Any:
            self.session = session
            outputs = run(session, *arguments)
            self._check(session)
            return outputs

        monkeypatch.setattr(Compiled, "plan", instrumented_plan)
        monkeypatch.setattr(Compiled, "plan_at_maximum", instrumented_at_maximum)
        monkeypatch.setattr(Collector, "finish", noting_finish)
        monkeypatch.setattr(PlanCache, "find", noting_find)
        # What is measured has plain numbers.
        monkeypatch.setattr(PlanCache, "_with_live_dims", lambda _, shapes: (shapes, {}))
        monkeypatch.setattr(Session, "run", checked_run)

    def _instrumented(self, plan: Plan) -> Plan:
        """The plan with a buffer more for each launch, after its scratch buffers."""
        first = len(plan.scratch_bytes)
        launches = []
        for index, launch in enumerate(plan.launches):
            buffers = (*launch.buffers, ScratchRef(first + index))
            launches.append(launch._replace(module=instrument(launch.module), buffers=buffers))
        sizes = [4 * len(launch.module.bindings) for launch in launches]
        made = replace(plan, launches=tuple(launches), scratch_bytes=(*plan.scratch_bytes, *sizes))
        self.planned.append((made, self.dispatches))
        return made

    def _clear(self, recording: Recording) -> None:
        """Begin the counts at zero: another plan, of other scratch memory, may have used the buffers."""
        assert self.session is not None
        for launch in recording.plan.launches:
            notes = launch.buffers[-1]
            assert isinstance(notes, ScratchRef)
            self.session.device.write(recording._scratch[notes.index], bytes(4 * len(launch.module.bindings)))

    def _check(self, session: Session) -> None:
        assert self.ran is not None
        recording, numbers = self.ran
        (dispatches,) = (dispatches for plan, dispatches in self.planned if plan is recording.plan)
        for launch, dispatch in zip(recording.plan.launches, dispatches, strict=True):
            notes = launch.buffers[-1]
            assert isinstance(notes, ScratchRef)
            buffer = recording._scratch[notes.index]
            touched = np.frombuffer(session.device.read(buffer, 4 * len(launch.module.bindings)), np.uint32)
            _check_launch(launch, dispatch, numbers, touched.tolist())
            self.kernels.add(launch.module.kernel.name)


def _check_launch(launch: Launch, dispatch: Dispatch, numbers: Sequence[int], touched: list[int]) -> None:
    """No more iterations and no further elements than the kernel states."""
    module = launch.module
    parameters = {name: _settled(value, numbers) for name, value in dispatch.parameters.items()}
    names = {**module.constants, **parameters, "groups": launch.groups}
    where = f"{launch}, kernel {module.kernel} with {parameters} and groups {launch.groups}"
    loops = module.statements.loops
    is_emulated = ("IS_EMULATED", "true") in module.kernel.given  # which has loops of its own
    if loops is not None and not is_emulated:
        stated = loops.value(names)
        assert touched[0] <= stated, f"{where}: {touched[0]} iterations, it states {loops.text} = {stated}"
    for binding, reached in zip(module.bindings[:-1], touched[1:], strict=True):
        extent = module.statements.extents.get(binding.name)
        if extent is not None:
            stated = extent.value(names)
            assert reached <= stated, (
                f"{where}: {reached} elements of {binding.name}, it states {extent.text} = {stated}"
            )


def _settled(value: Any, numbers: Sequence[int]) -> Any:
    """A parameter where the plan's live terms have these numbers."""
    if isinstance(value, LiveInt):
        return value.expression.evaluate(numbers)
    if isinstance(value, Sequence):
        return [_settled(item, numbers) for item in value]
    return value
