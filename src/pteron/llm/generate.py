"""Tokens one after the other: the loop that stays on the GPU, and the same loop step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pteron.errors import DeviceError, InputError
from pteron.gpu import Command, Copy, Readback, submit
from pteron.llm.entered import work_on
from pteron.llm.grammar import Matcher
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Sampler
from pteron.runtime.outputs import Outputs
from pteron.runtime.tensors import View

SUBMISSIONS = 2  # under way at once: while the host reads one, the GPU has the other


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that was drawn, and its log-probability under the model; `top` are the likeliest tokens with
    theirs, as many as the sampling asks for, the likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class LoopCounters:
    """What a loop has cost. A stall is a read that left the GPU without work while the host waited."""

    tokens: int = 0
    stalls: int = 0
    throttles: int = 0  # reads that waited while further steps were queued: the GPU is the slower side
    submissions: int = 0


@dataclass(frozen=True, slots=True)
class _Burst:
    """Steps that follow one another on the GPU, and the tokens they draw on their way to the host."""

    first: int
    count: int
    readback: Readback
    submission: int


def generate_step(
    model: LanguageModel,
    sampler: Sampler,
    ids: Sequence[int],
    count: int,
    *,
    resident: bool | None = None,
    counters: LoopCounters | None = None,
    user: object = None,
    matcher: Matcher | None = None,
) -> Generator[Drawn, None, None]:
    """Read `ids`, then draw up to `count` tokens, as long as the context has room for them.

    `resident` keeps the loop on the GPU: each token is drawn there and fed to the next step there, several
    in one submission, while the host submits ahead and reads tokens as they arrive. It is the default where
    the program allows it.
    When the iterator ends, is closed or fails, `model.position` is behind the tokens that the cache holds for
    certain: all but the last one drawn, which has not been read yet. Whatever else begins on the model
    meanwhile takes the sequence over, and this iterator fails at its next token. `user` is who has claimed
    the sequence already, if anybody has.

    With a `matcher` every token is one that its grammar allows, and the last is the one that ends the text;
    the sampler is one with a mask then. The loop goes step by step: the GPU runs the model while the host
    finds out what may follow.
    """
    ids = model.ids(ids)
    if not ids:
        raise InputError("generation starts from at least one token")
    if resident and not model.is_resident:
        raise InputError(f"{model.program.file.name}: this model's loop cannot stay on the GPU")
    user = model.claim() if user is None else user
    model.check_room(len(ids))
    start = model.position + len(ids)
    if model.context:
        count = min(count, model.context - start + 1)
    if resident is None:
        resident = model.is_resident
    counters = counters or LoopCounters()
    if resident:
        loop = (
            _constrained(model, sampler, matcher, ids, count, counters, user)
            if matcher
            else _resident(model, sampler, ids, count, counters, user)
        )
    else:
        loop = _stepwise(model, sampler, matcher, ids, count, user)
    drawn: Drawn | None = None
    try:
        for step, result in enumerate(loop):
            with model.device.lock, work_on(model.device):
                model.check_user(user)
                if drawn is not None:  # it was fed to the step whose result this is
                    model.note(start + step - 1, drawn.token)
            drawn = result
            counters.tokens += 1
            yield result
    finally:
        try:
            loop.close()
        finally:
            model.settle(user)


def _stepwise(
    model: LanguageModel,
    sampler: Sampler,
    matcher: Matcher | None,
    ids: Sequence[int],
    count: int,
    user: object,
) -> Generator[Drawn, None, None]:
    """One step at a time, its logits through the host: right for every program."""
    device = model.device
    logits = model.read(ids, user)
    for step in range(count):
        if matcher:
            sampler.allow(matcher.mask())
        with device.lock, work_on(device):
            sampler.draw(logits, step)
            data = device.read(sampler.drawn, sampler.drawn_bytes)
        drawn = drawn_from(sampler, data, step)
        if matcher:
            matcher.take(drawn.token)
        yield drawn
        if matcher and matcher.is_finished:
            break
        if step + 1 < count:
            logits = model.read([drawn.token], user)


def _constrained(
    model: LanguageModel,
    sampler: Sampler,
    matcher: Matcher,
    ids: Sequence[int],
    count: int,
    counters: LoopCounters,
    user: object,
) -> Generator[Drawn, None, None]:
    """One step at a time on the GPU. What may follow a token is found out while the model reads it, so that
    another stream may come between the model and the draw: the sampler keeps the logits for itself."""
    device = model.device

    def keep(outputs: Outputs) -> list[Command]:
        return [sampler.keep(last_row(outputs))]

    *early, tokens = model.chunks(ids)
    for chunk in early:
        with device.lock, work_on(device):
            model.check_user(user)
            model.launch(chunk)
    for step in range(count):
        with device.lock, work_on(device):
            model.check_user(user)
            model.launch(tokens, keep)
        sampler.allow(matcher.mask())
        with device.lock, work_on(device):
            submit(device, sampler.commands(sampler.kept, step))
            sampler.took(step + 1)
            data = device.read(sampler.drawn, sampler.drawn_bytes)
        counters.submissions += 2
        counters.stalls += 1
        drawn = drawn_from(sampler, data, step)
        matcher.take(drawn.token)
        yield drawn
        if matcher.is_finished:
            break
        tokens = [drawn.token]


def _resident(
    model: LanguageModel,
    sampler: Sampler,
    ids: Sequence[int],
    count: int,
    counters: LoopCounters,
    user: object,
) -> Generator[Drawn, None, None]:
    """Steps follow one another on the GPU, some of them under way while the host reads the oldest."""
    device = model.device
    under_way: deque[_Burst] = deque()
    arrived: float | None = None  # when the last tokens did

    def launch(step: int, tokens: list[int] | None = None) -> int:
        """Submit steps from this one on, the first of which reads `tokens`; how many."""
        with device.lock, work_on(device):
            model.check_user(user)
            readback = device.readback(sampler.drawn_bytes)
            home = Copy(sampler.drawn, readback.staging, sampler.drawn_bytes)

            def draw(outputs: Outputs) -> list[Command]:
                return [*sampler.commands(last_row(outputs), step), home]

            if tokens is not None:
                submission, steps = model.launch(tokens, draw), 1
            else:
                most = min(model.pace.steps, count - step)
                submission, steps = model.launch_steps(
                    sampler.drawn_at(step - 1),
                    most,
                    lambda logits, token, growing: sampler.replay(logits, step, token, growing),
                    [home],
                )
            sampler.took(step + steps)
            readback.begin()
            under_way.append(_Burst(step, steps, readback, submission))
            counters.submissions += 1
            return steps

    def read() -> list[Drawn]:
        nonlocal arrived
        burst = under_way.popleft()
        with device.lock:
            if not burst.readback.is_ready():
                counters.throttles += bool(under_way)
                counters.stalls += not under_way
            data = burst.readback.peek(0, sampler.drawn_bytes, burst.submission)
            burst.readback.release()
        before, arrived = arrived, time.perf_counter()
        if before is not None:
            model.pace.took(burst.count, arrived - before)
        return [drawn_from(sampler, data, burst.first + index) for index in range(burst.count)]

    try:
        *early, last = model.chunks(ids)
        for chunk in early:
            with device.lock, work_on(device):
                model.check_user(user)
                model.launch(chunk)
        step = launch(0, last)
        while under_way or step < count:
            while step < count and len(under_way) < SUBMISSIONS:
                step += launch(step)
            yield from read()
    finally:
        while under_way:
            with suppress(DeviceError):  # nobody waits for these
                read()


def last_row(outputs: Outputs) -> View:
    """Where the logits after the last token of a call lie."""
    logits = outputs[0]
    assert isinstance(logits, View)
    return logits.last_row()


def drawn_from(sampler: Sampler, data: bytes, step: int) -> Drawn:
    """What a step drew, from the bytes of the sampler's ring."""
    return Drawn(*sampler.read(data, step), sampler.read_top(data, step))
