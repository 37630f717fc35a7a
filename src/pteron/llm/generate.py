"""Tokens one after the other: the loop that stays on the GPU, and the same loop step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pteron.errors import DeviceError, InputError
from pteron.llm.grammar import Matcher
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Sampler
from pteron.llm.submission import Drawn, StepSubmission, Submitter

SUBMISSIONS = 2  # under way at once: while the host reads one, the GPU has the other


@dataclass(slots=True)
class LoopCounters:
    """What a loop has cost. A stall is a read that left the GPU without work while the host waited."""

    tokens: int = 0
    stalls: int = 0
    throttles: int = 0  # reads that waited while further steps were queued: the GPU is the slower side
    submissions: int = 0


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
    launcher = Submitter(model, sampler, user)
    if not resident:
        loop = _stepwise(launcher, matcher, ids, count)
    elif matcher:
        loop = _constrained(launcher, matcher, ids, count, counters)
    else:
        loop = _resident(launcher, ids, count, counters)
    drawn: Drawn | None = None
    try:
        for step, result in enumerate(loop):
            with model.device.lock, device_guard(model.device):
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
    launcher: Submitter, matcher: Matcher | None, ids: Sequence[int], count: int
) -> Generator[Drawn, None, None]:
    """One step at a time, its logits through the host: right for every program."""
    for step in range(count):
        logits = launcher.model.read(ids, launcher.user)
        if matcher:
            launcher.sampler.allow(matcher.mask())
        drawn = launcher.draw(logits, step)
        if matcher:
            matcher.take(drawn.token)
        yield drawn
        if matcher and matcher.is_finished:
            break
        ids = [drawn.token]


def _constrained(
    launcher: Submitter, matcher: Matcher, ids: Sequence[int], count: int, counters: LoopCounters
) -> Generator[Drawn, None, None]:
    """One step at a time on the GPU. What may follow a token is found out while the model reads it."""
    *early, tokens = launcher.model.chunks(ids)
    for chunk in early:
        launcher.read(chunk)
    for step in range(count):
        launcher.read_and_keep(tokens)
        launcher.sampler.allow(matcher.mask())
        launched = launcher.draw_kept(step)
        with launcher.model.device.lock:
            (drawn,) = launched.read()
        counters.submissions += 2
        counters.stalls += 1
        matcher.take(drawn.token)
        yield drawn
        if matcher.is_finished:
            break
        tokens = [drawn.token]


def _resident(
    launcher: Submitter, ids: Sequence[int], count: int, counters: LoopCounters
) -> Generator[Drawn, None, None]:
    """Steps follow one another on the GPU, some of them under way while the host reads the oldest."""
    device, pace = launcher.model.device, launcher.model.pace
    under_way: deque[StepSubmission] = deque()
    arrived: float | None = None  # when the last tokens did

    def read() -> list[Drawn]:
        nonlocal arrived
        launched = under_way.popleft()
        with device.lock:
            if not launched.is_ready:
                counters.throttles += bool(under_way)
                counters.stalls += not under_way
            drawn = launched.read()
        before, arrived = arrived, time.perf_counter()
        if before is not None:
            pace.took(launched.count, arrived - before)
        return drawn

    try:
        *early, last = launcher.model.chunks(ids)
        for chunk in early:
            launcher.read(chunk)
        under_way.append(launcher.read_and_draw(last, 0))
        step = 1
        counters.submissions += 1
        while under_way or step < count:
            while step < count and len(under_way) < SUBMISSIONS:
                under_way.append(launcher.go_on(step, min(pace.steps, count - step)))
                step += under_way[-1].count
                counters.submissions += 1
            yield from read()
    finally:
        while under_way:
            with suppress(DeviceError):  # nobody waits for these
                read()
