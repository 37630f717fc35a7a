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
from pteron.passes import Prepared
from pteron.plan import Launch, Plan, ScratchRef, collect
from pteron.plan.verify import verify
from pteron.runtime import plan_cache, session
from pteron.runtime.plan_cache import Shapes
from pteron.runtime.session import Input, Output, Session, Wanted


@dataclass
class Measuring:
    """Takes its place between sessions and their plans; `kernels` are those that ran."""

    dispatches: list[Dispatch] = field(default_factory=list)  # of the plan in the making
    planned: dict[Launch, Dispatch] = field(default_factory=dict)
    ran: tuple[Recording, Mapping[int, int]] | None = None
    kernels: set[str] = field(default_factory=set)

    def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Instrument what is planned from now on, and check it after every run."""
        plan_at, ready, run = plan_cache.plan_at, Session.ready, Session.run

        def instrumented_plan(prepared: Prepared, shapes: Shapes, values: Mapping[int, int]) -> Plan:
            self.dispatches.clear()
            return self._instrumented(plan_at(prepared, shapes, values))

        def noting_verify(dispatch: Dispatch, *rest: Any) -> None:
            self.dispatches.append(dispatch)
            verify(dispatch, *rest)

        def noting_ready(self_: Session, shapes: Shapes, values: Mapping[int, int]) -> Recording:
            recording = ready(self_, shapes, values)
            self.ran = recording, values
            return recording

        def checked_run(
            self_: Session, inputs: Sequence[Input], wanted: Sequence[Wanted | None]
        ) -> list[Output]:
            outputs = run(self_, inputs, wanted)
            self._check(self_)
            return outputs

        monkeypatch.setattr(plan_cache, "plan_at", instrumented_plan)
        monkeypatch.setattr(session, "plan_at", instrumented_plan)
        monkeypatch.setattr(collect, "verify", noting_verify)
        monkeypatch.setattr(Session, "ready", noting_ready)
        monkeypatch.setattr(Session, "run", checked_run)

    def _instrumented(self, plan: Plan) -> Plan:
        """The plan with a buffer more for each launch, after its scratch buffers."""
        first = len(plan.scratch_bytes)
        launches = []
        for index, launch in enumerate(plan.launches):
            buffers = (*launch.buffers, ScratchRef(first + index))
            launches.append(replace(launch, module=instrument(launch.module), buffers=buffers))
        self.planned |= zip(launches, self.dispatches, strict=True)
        sizes = [4 * len(launch.module.bindings) for launch in launches]
        return replace(plan, launches=tuple(launches), scratch_bytes=(*plan.scratch_bytes, *sizes))

    def _check(self, ran: Session) -> None:
        assert self.ran is not None
        recording, values = self.ran
        for launch in recording.plan.launches:
            buffer = ran.memory[launch.buffers[-1]]
            touched = np.frombuffer(ran.device.read(buffer, 4 * len(launch.module.bindings)), np.uint32)
            ran.device.write(buffer, np.zeros_like(touched))
            _check_launch(launch, self.planned[launch], values, touched.tolist())
            self.kernels.add(launch.module.kernel.name)


def _check_launch(launch: Launch, dispatch: Dispatch, values: Mapping[int, int], touched: list[int]) -> None:
    """No more iterations and no further elements than the kernel states."""
    module = launch.module
    parameters = {name: _settled(value, values) for name, value in dispatch.parameters.items()}
    names = {**module.constants, **parameters, "groups": launch.groups}
    where = f"{launch.node.name}, kernel {module.kernel} with {parameters} and groups {launch.groups}"
    loops = module.statements.loops
    if loops is not None:
        stated = loops.value(names)
        assert touched[0] <= stated, f"{where}: {touched[0]} iterations, it states {loops.text} = {stated}"
    for binding, reached in zip(module.bindings[:-1], touched[1:], strict=True):
        extent = module.statements.extents.get(binding.name)
        if extent is not None:
            stated = extent.value(names)
            assert reached <= stated, (
                f"{where}: {reached} elements of {binding.name}, it states {extent.text} = {stated}"
            )


def _settled(value: Any, values: Mapping[int, int]) -> Any:
    """A parameter at these values of the live integers."""
    if isinstance(value, LiveInt):
        return value.expression.evaluate(values)
    if isinstance(value, Sequence):
        return [_settled(item, values) for item in value]
    return value
