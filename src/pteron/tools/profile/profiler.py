"""`profile`: the time of every launch of one call."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pteron.errors import InputError
from pteron.format.source import Source
from pteron.gpu import Device
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime import Program
from pteron.tools import Progress, silent
from pteron.tools.graph_structure import family_of_kernel, layers_of
from pteron.tools.profile.ceilings import ceilings_of
from pteron.tools.profile.report import Ceilings, LaunchTime, Profile, Stage
from pteron.tools.profile.timing import (
    CallTimes,
    ObservedCall,
    call_seconds,
    host_operator_seconds,
    measure,
    observe_calls,
)
from pteron.tools.profile.work import work_of
from pteron.tools.run import place_of
from pteron.tools.workload import PreparedWorkload, Selection, Workload, open_program, prepare_workload

REST = "rest of the call"  # checks of inputs, the interpreter, outputs


def profile(
    source: Source | Program,
    work: Workload | None = None,
    *,
    data: Iterable[Source] | Source = (),
    device: Device | str | None = None,
    digits: int | None = None,
    products: str | None = None,
    runs: int = 20,
    warmup: int = 3,
    timing: str = "auto",
    ceilings: bool = True,
    remeasure: bool = False,
    progress: Progress = silent,
) -> Profile:
    """Time every launch of one call in `runs` runs after `warmup` runs; medians of the faster half.

    `work` is a Selection of a method and its inputs (default: `forward` with random inputs of the maximum
    shapes), or a Prefill or Decode step of a language model. The call uses its own states. `timing` selects
    the clock (see `Timing`). `ceilings` adds the adapter's ceilings, from the cache unless `remeasure`.
    """
    if runs < 1 or warmup < 0:
        raise InputError(f"a profile needs at least one run, not {runs} after {warmup}")
    progress("preparing", 0, 0)
    with open_program(source, data, device, digits=digits, products=products) as program:
        started = time.perf_counter()
        with prepare_workload(program, work or Selection()) as prepared:
            loaded = time.perf_counter()
            calls = observe_calls(prepared)
            once = [Stage("prepare", loaded - started, True), Stage("first call", _since(loaded), True)]
            if not calls:
                raise InputError(f"{program.file.name}: {prepared.method.name} runs nothing on the GPU")
            progress("measuring the adapter's ceilings", 0, 0)
            found = ceilings_of(program.device, remeasure=remeasure) if ceilings or remeasure else None
            times = measure(calls, runs, warmup, timing, prepared.sampler, progress)
            operators = host_operator_seconds(prepared, runs)
            return _report(prepared, calls, times, call_seconds(prepared, runs), operators, once, found)


def _report(
    prepared: PreparedWorkload,
    calls: Sequence[ObservedCall],
    times: Sequence[CallTimes],
    whole_call: float,
    operators: Mapping[str, float],
    once: Sequence[Stage],
    ceilings: Ceilings | None,
) -> Profile:
    launches: list[LaunchTime] = []
    stages: dict[str, float] = defaultdict(float)
    graphs = prepared.program.graphs(prepared.method.name)
    layers = [layers_of(graph) for graph in graphs]
    planning = 0.0
    for call, measured in zip(calls, times, strict=True):
        graph, target = graphs[call.index], call.delegate.executable.target
        started = time.perf_counter()
        compiled = Compiled(prepare(graph), target)
        compiled.plan(call.shapes, call.values)
        planning += _since(started)
        works = work_of(compiled, call.shapes, call.values)
        own = len(works)  # the sampler's launches follow
        works += measured.sampler.works if measured.sampler else ()
        seconds_of = zip(measured.launch_seconds, measured.stamped_seconds, strict=True)
        found = zip(measured.launches, works, seconds_of, strict=True)
        for index, (launch, work, (seconds, stamped)) in enumerate(found):
            is_own = index < own
            launches.append(
                LaunchTime(
                    index=len(launches),
                    delegate=call.index if is_own else None,
                    node=launch.node,
                    nodes=launch.nodes,
                    operator=work.operator,
                    family=family_of_kernel(launch.module.kernel),
                    kernel=launch.module.kernel.name,
                    layer=layers[call.index].get(launch.node) if is_own else None,
                    groups=launch.grid(),
                    seconds=seconds,
                    stamped_seconds=stamped,
                    bytes_read=work.bytes_read,
                    bytes_written=work.bytes_written,
                    operations=work.operations,
                )
            )
        for name, spent in measured.stage_seconds.items():
            stages[name] += spent
    return Profile(
        program=Path(prepared.program.file.name).name,
        method=prepared.method.name,
        what=prepared.what,
        device=place_of(prepared.program),
        inputs=prepared.inputs,
        runs=len(times[0].whole),
        timing=times[0].timing,
        launches=tuple(launches),
        stamp_seconds=sum(each.stamped_seconds - each.seconds for each in launches) / max(1, len(launches)),
        paired_seconds=sum(sum(measured.paired_seconds) for measured in times),
        pass_seconds=sum(measured.pass_seconds for measured in times),
        call_seconds=whole_call,
        stages=(
            *once,
            Stage("plan and prepare", planning, True),
            *call_stages(stages, operators, whole_call),
        ),
        layers=max((max(each.values()) + 1 for each in layers if each), default=0),
        ceilings=ceilings,
    )


def call_stages(
    stages: Mapping[str, float], operators: Mapping[str, float], whole_call: float
) -> tuple[Stage, ...]:
    """The stages of delegates and the host operators, and the rest, so that their sum is the call.

    Stages are measured one after the other. If they take longer than the call, the host waits less for the
    GPU there, because it works meanwhile."""
    found = {**stages, **operators}
    rest = whole_call - sum(found.values())
    if rest < 0:
        found["wait"] = max(0.0, found["wait"] + rest)
    return (
        *(Stage(name, seconds, False) for name, seconds in found.items()),
        Stage(REST, max(0.0, rest), False),
    )


def _since(started: float) -> float:
    return time.perf_counter() - started
