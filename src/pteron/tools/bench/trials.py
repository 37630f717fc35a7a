"""What is measured of a work, as functions that do it once and tell how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pteron.errors import InputError
from pteron.gpu import Copy, Device, submit
from pteron.llm.generate import generate_step
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Sampler, Sampling
from pteron.runtime import Program
from pteron.tools.bench.report import CONTROL
from pteron.tools.run import Selection
from pteron.tools.subject import (
    Decode,
    Prefill,
    Subject,
    Work,
    language_model,
    prepared,
    read_before,
    token_stream,
)

_CONTROL_COPIES, _CONTROL_BYTES = 16, 1 << 20
_BATCH_SECONDS = 0.02  # of calls that follow one another, as one sample
_BATCH_MAX = 256
_LOAD_SECONDS = 0.5


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
class Trial:
    """Something to be done again and again; `once` gives the seconds that it took."""

    what: str
    inputs: tuple[str, ...]
    where: str
    unit: str
    amount: int
    once: Callable[[], float]


def control(device: Device, held: ExitStack) -> Trial:
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
    return Trial(CONTROL, (), str(device.adapter), "call", _CONTROL_COPIES, once)


def trials_of(program: Program, work: Work, pace: Pace, held: ExitStack) -> list[Trial]:
    """What is to be measured of a work; what that needs is held."""
    if isinstance(work, Selection):
        return _calls(held.enter_context(prepared(program, work)), pace)
    model = held.enter_context(language_model(program))
    if isinstance(work, Prefill):
        return [_prefill(model, work, pace)]
    return [_decode(model, work, pace, held)]


def _calls(subject: Subject, pace: Pace) -> list[Trial]:
    """A method waited for, its outputs on the host; and calls that follow one another, theirs on the GPU."""
    method, values = subject.method, subject.values
    device = method.device

    def once() -> float:
        started = time.perf_counter()
        method(*values)
        return time.perf_counter() - started

    where = str(device.adapter) if device else "the host"
    trials = [Trial(subject.what, subject.inputs, where, "call", 1, once)]
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


def _prefill(model: LanguageModel, work: Prefill, pace: Pace) -> Trial:
    """Tokens read from the beginning, until the logits after the last are on the host."""
    read_before(model, work)  # refuses what does not fit
    ids = token_stream(model, work.tokens)

    def once() -> float:
        model.reset()
        started = time.perf_counter()
        model.prefill(ids)
        return time.perf_counter() - started

    _warmed(once, pace, model.device)
    return Trial(str(work), (), str(model.device.adapter), "token", work.tokens, once)


def _decode(model: LanguageModel, work: Decode, pace: Pace, held: ExitStack) -> Trial:
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
    return Trial(str(work), (), str(model.device.adapter), "token", 1, once)


def _warmed(once: Callable[[], float], pace: Pace, device: Device | None) -> list[float]:
    """Samples that do not count; a GPU is busy for a while, since one that was idle is slow at first."""
    end = time.perf_counter() + (0.0 if device is None or device.target.is_cpu else _LOAD_SECONDS)
    found = [once() for _ in range(pace.warmup)]
    while time.perf_counter() < end:
        found.append(once())
    return found
