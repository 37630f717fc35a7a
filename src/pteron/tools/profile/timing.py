"""A call -> the times of its launches on the GPU, and of the host's stages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pteron.gpu import Device, Replay, record, submit
from pteron.graph import SymInt, Tensor
from pteron.host.tensors import HostResult, View
from pteron.llm.sampling import Sampler
from pteron.plan import Launch, Shapes
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted, taken
from pteron.runtime.staging import Input, live_shapes, live_values
from pteron.tools import Progress, silent
from pteron.tools.profile.clocks import clock_of, fit_to_pass, subtract_stamp_cost
from pteron.tools.profile.work import LaunchWork, make_plan, work_of
from pteron.tools.workload import PreparedCall

STAGES = ("find the plan", "upload", "record", "submit", "wait", "read")  # of the host, at every call
_WARMUP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A method's call of one of its delegates."""

    index: int  # of the delegate
    delegate: Delegate
    inputs: tuple[Input, ...]
    wanted: tuple[Wanted | None, ...]

    @property
    def shapes(self) -> Shapes:
        return live_shapes(self.delegate.executable, self.inputs)

    @property
    def values(self) -> dict[int, int]:
        return live_values(self.delegate.executable, self.inputs)


@dataclass(slots=True)
class CallTimes:
    """The times of every run: all launches in one pass, each launch, the host's stages.

    On a shared machine some runs take several times as long: results are medians of the faster half.
    """

    timing: str
    launches: tuple[Launch, ...]
    sampler: SamplerLaunches | None = None  # its launches come last
    whole: list[float] = field(default_factory=list)
    each: list[list[float]] = field(default_factory=list)
    pairs: list[list[float]] = field(default_factory=list)  # of two neighbouring launches together
    stages: list[dict[str, float]] = field(default_factory=list)

    @property
    def pass_seconds(self) -> float:
        return statistics.median(_quicker([[seconds] for seconds in self.whole])[0])

    @property
    def stamped_seconds(self) -> list[float]:
        """Seconds of every launch, as measured with timestamps around it."""
        return [statistics.median(found) for found in _quicker(self.each)]

    @property
    def paired_seconds(self) -> list[float]:
        """The same, less the cost of the timestamps between neighbours."""
        pairs = [statistics.median(found) for found in _quicker(self.pairs)]
        return subtract_stamp_cost(self.stamped_seconds, pairs)

    @property
    def launch_seconds(self) -> list[float]:
        """The same, fitted to the time of the whole pass."""
        if self.timing == "wall":
            return self.stamped_seconds
        return fit_to_pass(self.paired_seconds, self.pass_seconds)

    @property
    def stage_seconds(self) -> dict[str, float]:
        found = _quicker([list(stages.values()) for stages in self.stages])
        return {name: statistics.median(seconds) for name, seconds in zip(STAGES, found, strict=True)}


def _quicker(runs: list[list[float]]) -> list[list[float]]:
    """The times of the faster half of the runs, transposed: one list per item."""
    kept = sorted(runs, key=sum)[: (len(runs) + 1) // 2]
    return [list(times) for times in zip(*kept, strict=True)]


def delegate_calls(prepared: PreparedCall) -> list[DelegateCall]:
    """Call the method once; the calls of its delegates, in order."""
    calls: list[DelegateCall] = []

    def observe(index: int, delegate: Delegate) -> None:
        delegate.observer = lambda inputs, wanted: calls.append(
            DelegateCall(index, delegate, tuple(inputs), tuple(wanted))
        )

    for index, delegate in enumerate(prepared.method.delegates):
        observe(index, delegate)
    try:
        prepared.method(*prepared.values)
    finally:
        for delegate in prepared.method.delegates:
            delegate.observer = None
    return calls


def call_seconds(prepared: PreparedCall, runs: int) -> float:
    """The time of a whole call, including host operators, until its outputs are read."""
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        prepared.method(*prepared.values)
        found.append([time.perf_counter() - started])
    return statistics.median(_quicker(found)[0])


def measure(
    calls: Sequence[DelegateCall],
    runs: int,
    warmup: int,
    timing: str,
    sampler: Sampler | None = None,
    progress: Progress = silent,
) -> list[CallTimes]:
    """The times of every call; with a sampler, its launches run after each of them."""
    found = []
    for call in calls:
        session, states = call.delegate.session, call.delegate.states
        plan, replay = session.recorded(call.inputs, states)
        after = sampler_launches(call.delegate, call.inputs, sampler) if sampler else None
        if after:
            replay = Replay(replay.steps + after.replay.steps, replay.kept + after.replay.kept)
        clock = clock_of(session.device, len(replay.steps), timing)
        times = CallTimes(clock.timing, plan.launches + (after.launches if after else ()), after)
        found.append(times)
        _warm_up(replay, session.device)
        for run in range(warmup + runs):
            progress(f"timing {len(times.launches)} launches", run, warmup + runs)
            stages = host_stages(call)
            with session.device.lock:
                _upload_inputs(call)
                whole = clock.whole(replay)
                _upload_inputs(call)
                each = clock.each(replay)
                _upload_inputs(call)
                pairs = clock.pairs(replay)
            if run >= warmup:
                times.whole.append(whole)
                times.each.append(each)
                times.pairs.append(pairs)
                times.stages.append(stages)
    return found


def host_stages(call: DelegateCall) -> dict[str, float]:
    """Run a call stage by stage, waiting for the GPU in between; seconds by stage."""
    session, states, device = call.delegate.session, call.delegate.states, call.delegate.device
    clock = time.perf_counter
    with device.lock:
        marks = [clock()]
        session.ready(call.inputs)
        marks.append(clock())
        recording, numbers, copies = session.bring(call.inputs, states)
        marks.append(clock())
        views = session.outputs(recording, numbers, states)
        outputs, after, _ = taken(device, session.executable.name, views, call.wanted)
        recorded = record(device, [*copies, recording.replay(states), *after])
        marks.append(clock())
        recorded.submit()
        marks.append(clock())
        device.wait()
        marks.append(clock())
        for output in (each for each in outputs if isinstance(each, HostResult)):
            output.numpy()
        marks.append(clock())
    return {name: end - begin for name, (begin, end) in zip(STAGES, pairwise(marks), strict=True)}


def _warm_up(replay: Replay, device: Device) -> None:
    """Keep the GPU busy for a while: an idle one runs at a low clock."""
    end = time.perf_counter() + (0.0 if device.target.is_cpu else _WARMUP_SECONDS)
    while time.perf_counter() < end:
        submit(device, [replay])
        device.wait()


def _upload_inputs(call: DelegateCall) -> None:
    """Upload the inputs again: the previous run reused their memory for other tensors."""
    session = call.delegate.session
    _, _, copies = session.bring(call.inputs, call.delegate.states)
    submit(session.device, copies)
    session.device.wait()


@dataclass(frozen=True, slots=True)
class SamplerLaunches:
    """The launches of a sampler, their work, and their recorded commands."""

    launches: tuple[Launch, ...]
    works: tuple[LaunchWork, ...]
    replay: Replay


def sampler_launches(delegate: Delegate, inputs: Sequence[Input], sampler: Sampler) -> SamplerLaunches:
    """The launches that sample a token from the logits of a decode step, in the same pass."""
    session, states = delegate.session, delegate.states
    with session.device.lock:
        recording, numbers = session.ready(inputs)
        logits = session.outputs(recording, numbers, states)[0]
        assert isinstance(logits, View)
        row, target = logits.last_row(), session.executable.target
        graph = sampler.graph(row)
        shapes = tuple(value.shape_max if isinstance(value, Tensor) else None for value in graph.inputs)
        values = {value.id: 0 for value in graph.inputs if isinstance(value, SymInt)}
        plan = make_plan(graph, target, shapes, values)
        works = work_of(graph, target, shapes, values)
        return SamplerLaunches(plan.launches, tuple(works), sampler.replay(row, 0, sampler.token.buffer))
