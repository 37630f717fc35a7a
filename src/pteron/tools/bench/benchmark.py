"""`bench`: workloads on devices -> samples of how long calls and tokens take.

A measurement runs its workload once and returns the seconds. All measurements take turns in rounds, so that
each sees the machine at several times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pteron.errors import InputError
from pteron.format.source import Source
from pteron.gpu import Copy, Device, submit
from pteron.llm.cache.options import CacheOptions, CacheType
from pteron.llm.engine.generate import generate_step
from pteron.llm.model import LanguageModel
from pteron.llm.names.model_names import locate_source
from pteron.runtime import Program
from pteron.tools import Progress, silent
from pteron.tools.bench.report import CONTROL, ROUNDS, Bench, Case
from pteron.tools.run import place_of
from pteron.tools.workload import (
    Decode,
    Prefill,
    PreparedWorkload,
    Selection,
    Workload,
    greedy_sampler,
    language_model,
    open_program,
    prepare_step,
    prepare_workload,
    random_tokens,
)

DEFAULT_PROMPT, DEFAULT_CONTEXT = 128, 100
_SAMPLES_MIN = 2  # per case and round, however long they take
_CONTROL_COPIES, _CONTROL_BYTES = 16, 1 << 20
_BATCH_SECONDS = 0.02  # of back-to-back calls that form one sample
_BATCH_MAX = 256
_WARMUP_SECONDS = 0.5  # an idle GPU runs at a low clock


@dataclass(frozen=True, slots=True)
class Pace:
    """How much to measure per case: `runs` samples, or fewer if they take longer than `seconds`, after
    `warmup` calls that are not recorded."""

    runs: int = 50
    seconds: float = 10.0
    warmup: int = 5
    tokens: int = 32  # per decode sample

    def __post_init__(self) -> None:
        if self.runs < 1 or self.warmup < 1 or self.tokens < 1 or not self.seconds > 0:
            raise InputError(
                f"a benchmark needs at least one run, warm-up, token and some time, not {self.runs} runs, "
                f"{self.warmup} to warm up, {self.tokens} tokens in {self.seconds} s"
            )


# A workload to repeat: its case without samples, and a function that runs it once and returns the seconds.
Measurement: TypeAlias = tuple[Case, Callable[[], float]]


def bench(
    source: Source | Program,
    works: Sequence[Workload] = (),
    *,
    data: Iterable[Source] | Source = (),
    devices: Sequence[Device | str | None] = (None,),
    pace: Pace | None = None,
    digits: int | None = None,
    products: str | None = None,
    progress: Progress = silent,
    cache: CacheType | None = None,
) -> Bench:
    """Measure each workload on each device: latency and back-to-back throughput of calls, or the time per
    token of a language model.

    A workload is a Selection of a method and its inputs, or a Prefill or Decode step. The default is
    `forward` with random inputs of the maximum shapes; for a language model by name or folder, one step of
    each kind. KV caches have elements of type `cache`, and grow to the contexts of Decode steps, unless the
    program is loaded already.
    """
    pace, cases = pace or Pace(), list[Case]()
    least = max((work.context + pace.tokens for work in works if isinstance(work, Decode)), default=0)
    options = CacheOptions(cache=cache, least=least)
    if not isinstance(source, Program):
        source, data = locate_source(source, data)
    for device in devices:
        progress("preparing", 0, 0)
        with ExitStack() as stack:
            opened = open_program(source, data, device, digits=digits, products=products, cache=options)
            program = stack.enter_context(opened)
            context = None if isinstance(source, Program) else options.length(program.file) or None
            measurements = [
                measurement
                for work in works or _default_workloads(source, program)
                for measurement in _measurements(program, work, pace, stack, context)
            ]
            measurements.append(_control(program, stack))
            cases += _samples(measurements, pace, progress)
    return Bench(tuple(cases))


def _default_workloads(source: Source | Program, program: Program) -> list[Workload]:
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_dir():
        return [Selection()]
    with language_model(program) as model:
        most = model.steps_max if model.is_dynamic else 1
        context = max(1, min(DEFAULT_CONTEXT, (model.context or 2 * DEFAULT_CONTEXT) // 2))
        return [Prefill(min(DEFAULT_PROMPT, most, context)), Decode(context)]


def _samples(measurements: Sequence[Measurement], pace: Pace, progress: Progress) -> list[Case]:
    """The samples of all measurements; a measurement takes as many in every round as in the first."""
    found: list[list[float]] = [[] for _ in measurements]
    for turn in range(ROUNDS):
        for index, (case, once) in enumerate(measurements):
            progress(case.what, turn * len(measurements) + index, ROUNDS * len(measurements))
            count = len(found[index]) // turn if turn else 0
            found[index] += [once() for _ in range(count)] if turn else _first_round(once, pace)
    return [replace(case, samples=tuple(each)) for (case, _), each in zip(measurements, found, strict=True)]


def _first_round(once: Callable[[], float], pace: Pace) -> list[float]:
    samples: list[float] = []
    most = max(_SAMPLES_MIN, -(-pace.runs // ROUNDS))
    end = time.perf_counter() + pace.seconds / ROUNDS
    while len(samples) < most and (len(samples) < _SAMPLES_MIN or time.perf_counter() < end):
        samples.append(once())
    return samples


# Trials -----------------------------------------------------------------------------------------


def _case(program: Program, what: str, unit: str, amount: int, inputs: tuple[str, ...] = ()) -> Case:
    name = Path(program.file.name).name
    return Case(name, what, inputs, place_of(program), unit, amount, ROUNDS, ())


def _control(program: Program, stack: ExitStack) -> Measurement:
    """Work that no program takes part in: it shows how fast the machine itself is during the benchmark."""
    device = program.device
    source, target = (device.create_buffer(_CONTROL_BYTES, "a control of benchmarks") for _ in range(2))
    stack.callback(device.free, source)
    stack.callback(device.free, target)

    def once() -> float:
        started = time.perf_counter()
        for _ in range(_CONTROL_COPIES):
            submit(device, [Copy(source, target, _CONTROL_BYTES)])
            device.wait()
        return time.perf_counter() - started

    once()
    return replace(_case(program, CONTROL, "call", _CONTROL_COPIES), program=""), once


def _measurements(
    program: Program, work: Workload, pace: Pace, stack: ExitStack, context: int | None
) -> list[Measurement]:
    """The measurements of a workload; `stack` keeps their resources."""
    if isinstance(work, Selection):
        return _calls(stack.enter_context(prepare_workload(program, work)), pace)
    model = stack.enter_context(language_model(program, context))
    if isinstance(work, Prefill):
        return [_prefill(model, work, pace)]
    return [_decode(model, work, pace, stack)]


def _calls(call: PreparedWorkload, pace: Pace) -> list[Measurement]:
    """Single calls until the outputs are on the host; and back-to-back calls whose outputs stay on the
    GPU."""
    method, values = call.method, call.values
    device = method.device

    def once() -> float:
        started = time.perf_counter()
        method(*values)
        return time.perf_counter() - started

    case = _case(call.program, call.what, "call", 1, call.inputs)
    if device is None:
        case = replace(case, device="the host")
    measurements = [(case, once)]
    least = min(_warm_up(once, pace, device))
    if device is not None:
        count = max(1, min(_BATCH_MAX, int(_BATCH_SECONDS / least)))

        def batch() -> float:
            started = time.perf_counter()
            for _ in range(count):
                method(*values, on_gpu=True)
            device.wait()
            return (time.perf_counter() - started) / count

        batch()
        measurements.append((replace(case, what=f"{call.what}, back to back"), batch))
    return measurements


def _prefill(model: LanguageModel, work: Prefill, pace: Pace) -> Measurement:
    """Prefill of a new sequence, until its logits are on the host."""
    prepare_step(model, work)  # refuses what does not fit
    ids = random_tokens(model, work.tokens)

    def once() -> float:
        model.reset()
        started = time.perf_counter()
        model.prefill(ids)
        return time.perf_counter() - started

    _warm_up(once, pace, model.device)
    return _case(model.program, str(work), "token", work.tokens), once


def _decode(model: LanguageModel, work: Decode, pace: Pace, stack: ExitStack) -> Measurement:
    """The mean time of a token in a short greedy generation."""
    if work.context < 1:
        raise InputError(f"{work}: expected a context of at least one token")
    prepare_step(model, work)
    last = random_tokens(model, work.context)[-1:]
    count = min(pace.tokens, (model.context or work.context + pace.tokens) - work.context)
    sampler = stack.enter_context(greedy_sampler(model))

    def once() -> float:
        model.position = work.context - 1  # reads the last token again, which yields the first new one
        steps = generate_step(model, sampler, last, count + 1)
        next(steps)
        started = time.perf_counter()
        sampled = sum(1 for _ in steps)
        return (time.perf_counter() - started) / sampled

    _warm_up(once, pace, model.device)
    return _case(model.program, str(work), "token", 1), once


def _warm_up(once: Callable[[], float], pace: Pace, device: Device | None) -> list[float]:
    """Samples that are not recorded; on a GPU for at least half a second."""
    end = time.perf_counter() + (0.0 if device is None or device.target.is_cpu else _WARMUP_SECONDS)
    found = [once() for _ in range(pace.warmup)]
    while time.perf_counter() < end:
        found.append(once())
    return found
