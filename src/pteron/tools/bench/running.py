"""`bench`: how long calls and tokens take, again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pteron.errors import InputError
from pteron.gpu import Copy, Device, submit
from pteron.llm.generate import generate_step
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Sampler, Sampling
from pteron.runtime import Program
from pteron.runtime.program import Source
from pteron.tools.bench.report import CONTROL, Bench, Case
from pteron.tools.progress import Progress, silent
from pteron.tools.run import Selection
from pteron.tools.subject import (
    Decode,
    Prefill,
    Subject,
    Work,
    language_model,
    opened,
    prepared,
    read_before,
    token_stream,
)

ROUNDS = 5  # in which all cases take their turns, so that each sees the machine at several times
_ROUND_MIN = 2  # samples of a case in each, whatever time they take
_CONTROL_COPIES, _CONTROL_BYTES = 16, 1 << 20
_BATCH_SECONDS = 0.02  # of calls that follow one another, as one sample
_BATCH_MAX = 256
_LOAD_SECONDS = 0.5
DEFAULT_PROMPT, DEFAULT_CONTEXT = 128, 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured: so many samples of a case, or as many as so long allows, after some that do not
    count."""

    runs: int = 50
    seconds: float = 10.0
    warmup: int = 5
    tokens: int = 32  # of a decode sample

    def __post_init__(self) -> None:
        if self.runs < 1 or self.warmup < 1 or self.tokens < 1 or not self.seconds > 0:
            raise InputError(
                f"a benchmark needs at least one run, warm-up, token and some time, not {self.runs} runs, "
                f"{self.warmup} to warm up, {self.tokens} tokens in {self.seconds} s"
            )


@dataclass(frozen=True, slots=True)
class _Trial:
    """Something to be done again and again; `once` gives the seconds that it took."""

    what: str
    inputs: tuple[str, ...]
    where: str
    unit: str
    amount: int
    once: Callable[[], float]


def bench(
    source: Source | Program,
    works: Sequence[Work] = (),
    *,
    data: Iterable[Source] | Source = (),
    devices: Sequence[Device | str | None] = (None,),
    pace: Pace | None = None,
    progress: Progress = silent,
) -> Bench:
    """Measure each work on each device: the latency of calls and how they follow one another, or what tokens
    take that a language model reads and writes.

    A work is a Selection of a method and its inputs, or a Prefill or Decode step. Without any it is `forward`
    with random inputs of the largest shapes, or for a language model's folder a step of either kind.
    """
    pace, cases = pace or Pace(), list[Case]()
    for device in devices:
        progress("getting ready", 0, 0)
        program = opened(source, data, device)
        try:
            with ExitStack() as held:
                trials = [
                    trial
                    for work in works or _default(source, program)
                    for trial in _trials(program, work, pace, held)
                ]
                trials.append(_control(program.device, held))
                cases += _samples(Path(program.file.name).name, trials, pace, progress)
        finally:
            if program is not source:
                program.close()
    return Bench(tuple(cases))


def _default(source: Source | Program, program: Program) -> list[Work]:
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_dir():
        return [Selection()]
    with language_model(program) as model:
        most = model.steps_max if model.is_dynamic else 1
        context = max(1, min(DEFAULT_CONTEXT, (model.context or 2 * DEFAULT_CONTEXT) // 2))
        return [Prefill(min(DEFAULT_PROMPT, most, context)), Decode(context)]


def _control(device: Device, held: ExitStack) -> _Trial:
    """What no program has a part in, so that it tells how fast the machine itself is meanwhile."""
    source, target = (device.create_buffer(_CONTROL_BYTES, "a control of benchmarks") for _ in range(2))
    held.callback(device.free, source)
    held.callback(device.free, target)

    def once() -> float:
        started = time.perf_counter()
        for _ in range(_CONTROL_COPIES):
            submit(device, [Copy(source, target, _CONTROL_BYTES)])
            device.wait()
        return time.perf_counter() - started

    once()
    return _Trial(CONTROL, (), str(device.adapter), "call", _CONTROL_COPIES, once)


def _trials(program: Program, work: Work, pace: Pace, held: ExitStack) -> list[_Trial]:
    """What is to be measured of a work; what that needs is held."""
    if isinstance(work, Selection):
        return _calls(held.enter_context(prepared(program, work)), pace)
    model = held.enter_context(language_model(program))
    if isinstance(work, Prefill):
        return [_prefill(model, work, pace)]
    return [_decode(model, work, pace, held)]


def _calls(subject: Subject, pace: Pace) -> list[_Trial]:
    """A method waited for, its outputs on the host; and calls that follow one another, theirs on the GPU."""
    method, values = subject.method, subject.values
    device = method.device

    def once() -> float:
        started = time.perf_counter()
        method(*values)
        return time.perf_counter() - started

    where = str(device.adapter) if device else "the host"
    trials = [_Trial(subject.what, subject.inputs, where, "call", 1, once)]
    least = min(_warmed(once, pace, device))
    if device is not None:
        count = max(1, min(_BATCH_MAX, int(_BATCH_SECONDS / least)))

        def batch() -> float:
            started = time.perf_counter()
            for _ in range(count):
                method(*values, on_gpu=True)
            device.wait()
            return (time.perf_counter() - started) / count

        batch()
        trials.append(replace(trials[0], what=f"{subject.what}, back to back", once=batch))
    return trials


def _prefill(model: LanguageModel, work: Prefill, pace: Pace) -> _Trial:
    """Tokens read from the beginning, until the logits after the last are on the host."""
    read_before(model, work)  # refuses what does not fit
    ids = token_stream(model, work.tokens)

    def once() -> float:
        model.reset()
        started = time.perf_counter()
        model.prefill(ids)
        return time.perf_counter() - started

    _warmed(once, pace, model.device)
    return _Trial(str(work), (), str(model.device.adapter), "token", work.tokens, once)


def _decode(model: LanguageModel, work: Decode, pace: Pace, held: ExitStack) -> _Trial:
    """A token, on average of some that are drawn one after the other, the likeliest each time."""
    if work.context < 1:
        raise InputError(f"{work}: a text begins with at least one token")
    read_before(model, work)
    last = token_stream(model, work.context)[-1:]
    count = min(pace.tokens, (model.context or work.context + pace.tokens) - work.context)
    sampler = Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype)
    held.callback(sampler.close)

    def once() -> float:
        model.position = work.context - 1  # the last is read again: it makes the first token
        steps = generate_step(model, sampler, last, count + 1)
        next(steps)
        started = time.perf_counter()
        drawn = sum(1 for _ in steps)
        return (time.perf_counter() - started) / drawn

    _warmed(once, pace, model.device)
    return _Trial(str(work), (), str(model.device.adapter), "token", 1, once)


def _warmed(once: Callable[[], float], pace: Pace, device: Device | None) -> list[float]:
    """Samples that do not count; a GPU is busy for a while, since one that was idle is slow at first."""
    end = time.perf_counter() + (0.0 if device is None or device.target.is_cpu else _LOAD_SECONDS)
    found = [once() for _ in range(pace.warmup)]
    while time.perf_counter() < end:
        found.append(once())
    return found


def _samples(program: str, trials: Sequence[_Trial], pace: Pace, progress: Progress) -> list[Case]:
    """Samples of all trials, in turns; every turn of a trial has as many."""
    found: list[list[float]] = [[] for _ in trials]
    each = [0] * len(trials)
    for turn in range(ROUNDS):
        for index, trial in enumerate(trials):
            progress(trial.what, turn * len(trials) + index, ROUNDS * len(trials))
            if turn == 0:
                found[index] = _first(trial, pace)
                each[index] = len(found[index])
            else:
                found[index] += [trial.once() for _ in range(each[index])]
    return [
        Case(
            program=program if trial.what != CONTROL else "",
            what=trial.what,
            inputs=trial.inputs,
            device=trial.where,
            unit=trial.unit,
            amount=trial.amount,
            rounds=ROUNDS,
            samples=tuple(samples),
        )
        for trial, samples in zip(trials, found, strict=True)
    ]


def _first(trial: _Trial, pace: Pace) -> list[float]:
    """A first turn: as many samples as asked for, or fewer if they take too long."""
    samples: list[float] = []
    most = max(_ROUND_MIN, -(-pace.runs // ROUNDS))
    end = time.perf_counter() + pace.seconds / ROUNDS
    while len(samples) < most and (len(samples) < _ROUND_MIN or time.perf_counter() < end):
        samples.append(trial.once())
    return samples
