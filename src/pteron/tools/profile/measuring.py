"""A method and its inputs -> the times of its launches, and of what the host does at a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pteron.gpu import Device, Replay, record, submit
from pteron.gpu.tensors import HostResult
from pteron.llm.sampling import Sampler
from pteron.plan import Launch, Shapes
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted, taken
from pteron.runtime.staging import Input, live_shapes, live_values
from pteron.tools.profile.clocks import clock_of
from pteron.tools.profile.draw import Draw, draw_behind
from pteron.tools.profile.stamps import within_pass, without_neighbours
from pteron.tools.progress import Progress, silent
from pteron.tools.subject import Subject

STAGES = ("find the plan", "upload", "record", "submit", "wait", "read")  # of the host, at a call
_LOAD_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call that a method makes of one of its graphs."""

    index: int  # which graph
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
class Times:
    """What every run took: all launches of a graph as one pass, each of them, the stages of the host.

    Where others use a machine too, some runs take several times as long. So medians are of the quicker half.
    """

    timing: str
    launches: tuple[Launch, ...]
    draw: Draw | None = None  # whose launches are the last of these
    whole: list[float] = field(default_factory=list)
    each: list[list[float]] = field(default_factory=list)
    pairs: list[list[float]] = field(default_factory=list)  # of launches that follow one another, as one
    stages: list[dict[str, float]] = field(default_factory=list)

    @property
    def pass_seconds(self) -> float:
        return statistics.median(_quicker([[seconds] for seconds in self.whole])[0])

    @property
    def stamped_seconds(self) -> list[float]:
        """Of every launch as it was measured, with stamps around it."""
        return [statistics.median(found) for found in _quicker(self.each)]

    @property
    def paired_seconds(self) -> list[float]:
        """The same without what the stamp between two launches costs, by the time of both as one."""
        pairs = [statistics.median(found) for found in _quicker(self.pairs)]
        return without_neighbours(self.stamped_seconds, pairs)

    @property
    def launch_seconds(self) -> list[float]:
        """The same, of which stamps leave no more than the pass takes."""
        if self.timing == "wall":
            return self.stamped_seconds
        return within_pass(self.paired_seconds, self.pass_seconds)

    @property
    def stage_seconds(self) -> dict[str, float]:
        found = _quicker([list(stages.values()) for stages in self.stages])
        return {name: statistics.median(seconds) for name, seconds in zip(STAGES, found, strict=True)}


def _quicker(runs: list[list[float]]) -> list[list[float]]:
    """The half of the runs that took least in all, their times by what they are of."""
    kept = sorted(runs, key=sum)[: (len(runs) + 1) // 2]
    return [list(times) for times in zip(*kept, strict=True)]


def delegate_calls(subject: Subject) -> list[DelegateCall]:
    """The calls of graphs that one call of the method makes, in order."""
    calls: list[DelegateCall] = []

    def observe(index: int, delegate: Delegate) -> None:
        delegate.observer = lambda inputs, wanted: calls.append(
            DelegateCall(index, delegate, tuple(inputs), tuple(wanted))
        )

    for index, delegate in enumerate(subject.method.delegates):
        observe(index, delegate)
    try:
        subject.method(*subject.values)
    finally:
        for delegate in subject.method.delegates:
            delegate.observer = None
    return calls


def call_seconds(subject: Subject, runs: int) -> float:
    """What a call takes that is waited for, operators of the host and all."""
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        subject.method(*subject.values)
        found.append([time.perf_counter() - started])
    return statistics.median(_quicker(found)[0])


def measure(
    calls: Sequence[DelegateCall],
    runs: int,
    warmup: int,
    timing: str,
    sampler: Sampler | None = None,
    progress: Progress = silent,
) -> list[Times]:
    """The times of every call, after some runs that are not counted. A sampler draws a token behind each."""
    found = []
    for call in calls:
        session, states = call.delegate.session, call.delegate.states
        plan, replay = session.recorded(call.inputs, states)
        draw = draw_behind(call.delegate, call.inputs, sampler) if sampler else None
        if draw:
            replay = Replay(replay.steps + draw.replay.steps, replay.kept + draw.replay.kept)
        clock = clock_of(session.device, len(replay.steps), timing)
        times = Times(clock.timing, plan.launches + (draw.launches if draw else ()), draw)
        found.append(times)
        _load(replay, session.device)
        for run in range(warmup + runs):
            progress(f"timing {len(times.launches)} launches", run, warmup + runs)
            stages = host_stages(call)
            with session.device.lock:
                _bring(call)
                whole = clock.whole(replay)
                _bring(call)
                each = clock.each(replay)
                _bring(call)
                pairs = clock.pairs(replay)
            if run >= warmup:
                times.whole.append(whole)
                times.each.append(each)
                times.pairs.append(pairs)
                times.stages.append(stages)
    return found


def host_stages(call: DelegateCall) -> dict[str, float]:
    """Run a call in parts, one after the other, and wait where it would not: seconds by what is done."""
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


def _load(replay: Replay, device: Device) -> None:
    """Keep a GPU busy for a while: one that was idle runs at a fraction of its clock."""
    end = time.perf_counter() + (0.0 if device.target.is_cpu else _LOAD_SECONDS)
    while time.perf_counter() < end:
        submit(device, [replay])
        device.wait()


def _bring(call: DelegateCall) -> None:
    """Bring the inputs into place: earlier runs have used their memory for other tensors."""
    session = call.delegate.session
    _, _, copies = session.bring(call.inputs, call.delegate.states)
    submit(session.device, copies)
    session.device.wait()
