"""A call -> the times of its launches on the GPU, by its timestamps or, without these, by the host's clock;
and the times of the host's stages.

A timestamp waits for the launch before it, and the launch after it waits for the timestamp, so launches
neither overlap nor follow each other as closely as in a plain pass. The cost of a timestamp between two
launches is the time of both with it, less the time of both without it; half of it is subtracted from each.
What the sum of all launches still exceeds the whole pass by is subtracted from all of them equally.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

from pteron.errors import InputError
from pteron.gpu import Device, LaunchTimer, Replay, record, submit
from pteron.graph import SymInt, Tensor
from pteron.host.tensors import HostResult, View
from pteron.llm.sampling import Sampler
from pteron.passes import prepare
from pteron.plan import Compiled, Launch, Shapes
from pteron.runtime.delegate import Delegate
from pteron.runtime.execution import COPIES
from pteron.runtime.outputs import Wanted, allocate_outputs
from pteron.runtime.staging import Input, live_shapes, live_values
from pteron.tools import Progress, silent
from pteron.tools.profile.work import LaunchWork, work_of
from pteron.tools.workload import PreparedWorkload

STAGES = ("find the plan", "upload", "record", "submit", "wait", "read")  # of the host, at every call
_WARMUP_SECONDS = 0.5
# "stamps": timestamps between the launches of one pass. "passes": one pass per launch. "wall": the host's
# time for many repetitions of a launch, less that of one. "auto": the first that the adapter supports.
Timing: TypeAlias = Literal["auto", "stamps", "passes", "wall"]
_REPEATED_SECONDS = 4e-3  # of GPU work per submission, to make the host's time negligible
_REPEATS_MAX = 64


@dataclass(frozen=True, slots=True)
class ObservedCall:
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
        return _medians([[seconds] for seconds in self.whole])[0]

    @property
    def stamped_seconds(self) -> list[float]:
        """Seconds of every launch, as measured with timestamps around it."""
        return _medians(self.each)

    @property
    def paired_seconds(self) -> list[float]:
        """The same, less the cost of the timestamps between neighbours."""
        return subtract_stamp_cost(self.stamped_seconds, _medians(self.pairs))

    @property
    def launch_seconds(self) -> list[float]:
        """The same, fitted to the time of the whole pass."""
        if self.timing == "wall":
            return self.stamped_seconds
        return fit_to_pass(self.paired_seconds, self.pass_seconds)

    @property
    def stage_seconds(self) -> dict[str, float]:
        return dict(zip(STAGES, _medians([list(stages.values()) for stages in self.stages]), strict=True))


def _medians(runs: list[list[float]]) -> list[float]:
    """The median of every item over the faster half of the runs."""
    kept = sorted(runs, key=sum)[: (len(runs) + 1) // 2]
    return [statistics.median(times) for times in zip(*kept, strict=True)]


def observe_calls(prepared: PreparedWorkload) -> list[ObservedCall]:
    """Call the method once; the calls of its delegates, in order."""
    calls: list[ObservedCall] = []

    def observe(index: int, delegate: Delegate, inputs: Sequence[Input], wanted: Sequence[Any]) -> None:
        calls.append(ObservedCall(index, delegate, tuple(inputs), tuple(wanted)))

    for index, delegate in enumerate(prepared.method.delegates):
        delegate.observer = partial(observe, index, delegate)
    try:
        prepared.method(*prepared.values)
    finally:
        for delegate in prepared.method.delegates:
            delegate.observer = None
    return calls


def call_seconds(prepared: PreparedWorkload, runs: int) -> float:
    """The time of a whole call, including host operators, until its outputs are read."""
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        prepared.method(*prepared.values)
        found.append([time.perf_counter() - started])
    return _medians(found)[0]


def host_operator_seconds(prepared: PreparedWorkload, runs: int) -> dict[str, float]:
    """The time of each host operator of a call, of all its runs together, and of copies for them."""
    found: list[dict[str, list[float]]] = []
    prepared.method.observe_host(lambda name, seconds: found[-1].setdefault(name, []).append(seconds))
    try:
        for _ in range(runs):
            found.append({})
            prepared.method(*prepared.values)
    finally:
        prepared.method.observe_host(None)
    names = [_counted(name, len(times)) for name, times in found[0].items()]
    sums = [[sum(times) for times in run.values()] for run in found if run.keys() == found[0].keys()]
    return dict(zip(names, _medians(sums), strict=True))


def _counted(name: str, count: int) -> str:
    return name if count == 1 or name == COPIES else f"{name}, {count} times"


def measure(
    calls: Sequence[ObservedCall],
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
            replay = Replay(replay.launches + after.replay.launches, replay.kept + after.replay.kept)
        clock = clock_of(session.device, len(replay.launches), timing)
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


def host_stages(call: ObservedCall) -> dict[str, float]:
    """Run a call stage by stage, waiting for the GPU in between; seconds by stage."""
    session, states, device = call.delegate.session, call.delegate.states, call.delegate.device
    clock = time.perf_counter
    with device.lock:
        marks = [clock()]
        session.find_recording(call.inputs)
        marks.append(clock())
        recording, numbers, copies = session.stage_inputs(call.inputs, states)
        marks.append(clock())
        views = session.outputs(recording, numbers, states)
        outputs, after, _ = allocate_outputs(device, session.executable.name, views, call.wanted)
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


def _upload_inputs(call: ObservedCall) -> None:
    """Upload the inputs again: the previous run reused their memory for other tensors."""
    session = call.delegate.session
    _, _, copies = session.stage_inputs(call.inputs, call.delegate.states)
    submit(session.device, copies)
    session.device.wait()


@dataclass(frozen=True, slots=True)
class SamplerLaunches:
    launches: tuple[Launch, ...]
    works: tuple[LaunchWork, ...]
    replay: Replay


def sampler_launches(delegate: Delegate, inputs: Sequence[Input], sampler: Sampler) -> SamplerLaunches:
    """The launches that sample a token from the logits of a decode step, in the same pass."""
    session, states = delegate.session, delegate.states
    with session.device.lock:
        recording, numbers = session.find_recording(inputs)
        logits = session.outputs(recording, numbers, states)[0]
        assert isinstance(logits, View)
        row, target = logits.last_row(), session.executable.target
        graph = sampler.graph(row)
        shapes = tuple(value.shape_max if isinstance(value, Tensor) else None for value in graph.inputs)
        values = {value.id: 0 for value in graph.inputs if isinstance(value, SymInt)}
        compiled = Compiled(prepare(graph), target)
        plan, works = compiled.plan(shapes, values), work_of(compiled, shapes, values)
        return SamplerLaunches(plan.launches, tuple(works), sampler.replay(row, 0, sampler.token.buffer))


class StampClock:
    """Times recorded steps by the GPU's timestamps: `whole` in one pass, `each` in order, or `pairs` of
    neighbours."""

    def __init__(self, device: Device, steps: int, *, inside: bool | None = None) -> None:
        self._steps = LaunchTimer(device, max(1, steps), inside=inside)
        self.timing = "stamps" if self._steps.is_inside else "passes"

    def whole(self, replay: Replay) -> float:
        return sum(self._steps.run(replay, [len(replay.launches)]))

    def each(self, replay: Replay) -> list[float]:
        return self._steps.run(replay)

    def pairs(self, replay: Replay) -> list[float]:
        """One run for the pairs that start at even steps, one for the odd ones."""
        count = len(replay.launches)
        even = self._steps.run(replay, [*range(2, count, 2), count])[: count // 2]
        odd = self._steps.run(replay, [*range(1, count, 2), count])[1 : 1 + (count - 1) // 2]
        found = [0.0] * (count - 1)
        found[::2], found[1::2] = even, odd
        return found


class WallClock:
    """The same by the host's clock: the additional time of additional repetitions. It needs no pairs."""

    timing = "wall"

    def __init__(self, device: Device) -> None:
        self._device = device

    def each(self, replay: Replay) -> list[float]:
        return [self.whole(Replay([step], replay.kept)) for step in replay.launches]

    def pairs(self, replay: Replay) -> list[float]:
        return []

    def whole(self, replay: Replay) -> float:
        if not replay.launches:
            return 0.0
        once = self._seconds(replay, 1)
        count = int(min(_REPEATS_MAX, max(2, _REPEATED_SECONDS / once)))
        return max(0.0, self._seconds(replay, 1 + count) - min(once, self._seconds(replay, 1))) / count

    def _seconds(self, replay: Replay, count: int) -> float:
        self._device.wait()
        started = time.perf_counter()
        submit(self._device, [replay] * count)
        self._device.wait()
        return time.perf_counter() - started


def clock_of(device: Device, steps: int, timing: str = "auto") -> StampClock | WallClock:
    if timing not in get_args(Timing):
        raise InputError(f"timing must be one of {', '.join(get_args(Timing))}, not {timing!r}")
    has_stamps = "timestamp-query" in device.adapter.features
    if timing == "wall" or (timing == "auto" and not has_stamps):
        return WallClock(device)
    inside = {"auto": None, "stamps": True, "passes": False}[timing]
    return StampClock(device, steps, inside=inside)


def subtract_stamp_cost(each: Sequence[float], pairs: Sequence[float]) -> list[float]:
    """The times of launches without the timestamps, from the times of each and of neighbouring pairs.

    A cost is clamped to the shorter launch of a pair, so that no time becomes negative.
    """
    found = list(each)
    for index, pair in enumerate(pairs):
        first, second = each[index], each[index + 1]
        cost = min(max(first + second - pair, 0.0), first, second)
        found[index] -= cost / 2
        found[index + 1] -= cost / 2
    return found


def fit_to_pass(each: Sequence[float], whole: float) -> list[float]:
    """Subtract an equal part from every launch, at most its own time, until the sum does not exceed the
    pass."""
    found = list(each)
    rest = sum(found) - whole
    for place, index in enumerate(sorted(range(len(found)), key=lambda index: each[index])):
        if rest <= 0:
            break
        taken = min(found[index], rest / (len(found) - place))  # the remaining launches share the rest
        found[index] -= taken
        rest -= taken
    return found
