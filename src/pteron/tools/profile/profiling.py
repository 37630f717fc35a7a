"""`profile`: where the time of a call goes, launch by launch."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pteron.errors import InputError
from pteron.gpu import Device
from pteron.runtime import Program
from pteron.runtime.program import Source
from pteron.tools.profile.ceilings import ceilings_of
from pteron.tools.profile.families import family_of_kernel
from pteron.tools.profile.layers import layers_of
from pteron.tools.profile.measuring import (
    DelegateCall,
    Times,
    call_seconds,
    delegate_calls,
    measure,
)
from pteron.tools.profile.report import Ceilings, LaunchTime, Profile, Stage
from pteron.tools.profile.work import planned_again, work_of
from pteron.tools.progress import Progress, silent
from pteron.tools.run import Selection
from pteron.tools.subject import Subject, Work, opened, prepared


def profile(
    source: Source | Program,
    work: Work | None = None,
    *,
    data: Iterable[Source] | Source = (),
    device: Device | str | None = None,
    runs: int = 20,
    warmup: int = 3,
    timing: str = "auto",
    ceilings: bool = True,
    remeasure: bool = False,
    progress: Progress = silent,
) -> Profile:
    """Time every launch of one call, `runs` times after `warmup` more: medians of the quicker half.

    `work` is a Selection of a method and its inputs (by default `forward` with random ones of the largest
    shapes), or a Prefill or Decode step of a language model. The call has states of its own: nobody else's
    change. `timing` says how (see `Timing`). With `ceilings` the adapter's are part of it, from the cache
    unless they are to be measured anew.
    """
    if runs < 1 or warmup < 0:
        raise InputError(f"a profile needs at least one run, not {runs} after {warmup}")
    progress("getting ready", 0, 0)
    program = opened(source, data, device)
    try:
        started = time.perf_counter()
        with prepared(program, work or Selection()) as subject:
            loaded = time.perf_counter()
            calls = delegate_calls(subject)
            once = [Stage("get ready", loaded - started, True), Stage("first call", _since(loaded), True)]
            if not calls:
                raise InputError(f"{program.file.name}: {subject.method.name} runs nothing on the GPU")
            progress("measuring the adapter's ceilings", 0, 0)
            found = ceilings_of(program.device, remeasure=remeasure) if ceilings or remeasure else None
            times = measure(calls, runs, warmup, timing, subject.sampler, progress)
            return _report(subject, calls, times, call_seconds(subject, runs), once, found)
    finally:
        if program is not source:
            program.close()


def _report(
    subject: Subject,
    calls: Sequence[DelegateCall],
    times: Sequence[Times],
    whole_call: float,
    once: Sequence[Stage],
    ceilings: Ceilings | None,
) -> Profile:
    launches: list[LaunchTime] = []
    stages: dict[str, float] = defaultdict(float)
    graphs = subject.program.graphs(subject.method.name)
    layers = [layers_of(graph) for graph in graphs]
    planning = 0.0
    for call, taken in zip(calls, times, strict=True):
        graph, target = graphs[call.index], call.delegate.executable.target
        started = time.perf_counter()
        planned_again(graph, target, call.shapes, call.values)
        planning += _since(started)
        works = work_of(graph, target, call.shapes, call.values)
        own = len(works)  # those behind them draw a token
        works += taken.draw.works if taken.draw else ()
        times_of = zip(taken.launches, works, taken.launch_seconds, taken.stamped_seconds, strict=True)
        for index, (launch, work, seconds, stamped) in enumerate(times_of):
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
                    groups=launch.groups,
                    seconds=seconds,
                    stamped_seconds=stamped,
                    bytes_read=work.bytes_read,
                    bytes_written=work.bytes_written,
                    operations=work.operations,
                )
            )
        for name, spent in taken.stage_seconds.items():
            stages[name] += spent
    return Profile(
        program=Path(subject.program.file.name).name,
        method=subject.method.name,
        what=subject.what,
        device=str(subject.program.device.adapter),
        inputs=subject.inputs,
        runs=len(times[0].whole),
        timing=times[0].timing,
        launches=tuple(launches),
        stamp_seconds=sum(each.stamped_seconds - each.seconds for each in launches) / max(1, len(launches)),
        paired_seconds=sum(sum(taken.paired_seconds) for taken in times),
        pass_seconds=sum(taken.pass_seconds for taken in times),
        call_seconds=whole_call,
        stages=(
            *once,
            Stage("plan and prepare", planning, True),
            *(Stage(name, seconds, False) for name, seconds in stages.items()),
        ),
        layers=max((max(found.values()) + 1 for found in layers if found), default=0),
        ceilings=ceilings,
    )


def _since(started: float) -> float:
    return time.perf_counter() - started
