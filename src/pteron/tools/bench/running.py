"""`bench`: how long calls and tokens take, again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from pteron.gpu import Device
from pteron.runtime import Program
from pteron.runtime.program import Source
from pteron.tools.bench.report import CONTROL, Bench, Case
from pteron.tools.bench.trials import Pace, Trial, control, trials_of
from pteron.tools.progress import Progress, silent
from pteron.tools.run import Selection
from pteron.tools.subject import Decode, Prefill, Work, language_model, opened

ROUNDS = 5  # in which all cases take their turns, so that each sees the machine at several times
_ROUND_MIN = 2  # samples of a case in each, whatever time they take
DEFAULT_PROMPT, DEFAULT_CONTEXT = 128, 100


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
                    for trial in trials_of(program, work, pace, held)
                ]
                trials.append(control(program.device, held))
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


def _samples(program: str, trials: Sequence[Trial], pace: Pace, progress: Progress) -> list[Case]:
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


def _first(trial: Trial, pace: Pace) -> list[float]:
    """A first turn: as many samples as asked for, or fewer if they take too long."""
    samples: list[float] = []
    most = max(_ROUND_MIN, -(-pace.runs // ROUNDS))
    end = time.perf_counter() + pace.seconds / ROUNDS
    while len(samples) < most and (len(samples) < _ROUND_MIN or time.perf_counter() < end):
        samples.append(trial.once())
    return samples
