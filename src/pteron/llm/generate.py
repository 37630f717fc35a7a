"""Tokens one after the other: the loop that stays on the GPU, and the same loop step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from pteron.errors import InputError
from pteron.gpu import Command, Copy, Readback
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Sampler
from pteron.runtime.session import Outputs
from pteron.runtime.tensors import View

IN_FLIGHT = 4  # steps submitted and not yet read: enough that the GPU seldom waits for the host


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that was drawn, and its log-probability under the model."""

    token: int
    logprob: float


@dataclass(slots=True)
class LoopCounters:
    """What a loop has cost. A stall is a read that left the GPU without work while the host waited."""

    tokens: int = 0
    stalls: int = 0
    throttles: int = 0  # reads that waited while further steps were queued: the GPU is the slower side


def generate_step(
    model: LanguageModel,
    sampler: Sampler,
    ids: Sequence[int],
    count: int,
    *,
    resident: bool | None = None,
    counters: LoopCounters | None = None,
) -> Generator[Drawn, None, None]:
    """Read `ids`, then draw up to `count` tokens, as long as the context has room for them.

    `resident` keeps the loop on the GPU: each token is drawn there and fed to the next step there, while the
    host launches steps ahead and reads tokens as they arrive. It is the default where the program allows it.
    When the iterator ends, is closed or fails, `model.position` is behind the tokens that the cache holds for
    certain: all but the last one drawn, which has not been read yet.
    """
    if not ids:
        raise InputError("generation starts from at least one token")
    model.check_room(len(ids))
    start, user = model.position + len(ids), model.user
    if model.context:
        count = min(count, model.context - start + 1)
    if resident is None:
        resident = model.is_resident
    counters = counters or LoopCounters()
    loop = (
        _resident(model, sampler, ids, count, counters) if resident else _stepwise(model, sampler, ids, count)
    )
    drawn: Drawn | None = None
    try:
        for step, result in enumerate(loop):
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
    model: LanguageModel, sampler: Sampler, ids: Sequence[int], count: int
) -> Generator[Drawn, None, None]:
    """One step at a time, its logits through the host: right for every program."""
    device = model.device
    logits = model.prefill(ids)
    for step in range(count):
        with device.lock:
            sampler.draw(logits, step)
            token = int(np.frombuffer(device.read(sampler.token.buffer, 4), np.int32)[0])
            logprob = float(np.frombuffer(device.read(sampler.logprob.buffer, 4), np.float32)[0])
        yield Drawn(token, logprob)
        if step + 1 < count:
            logits = model.decode_one_token(token)


def _resident(
    model: LanguageModel, sampler: Sampler, ids: Sequence[int], count: int, counters: LoopCounters
) -> Generator[Drawn, None, None]:
    """Steps follow one another on the GPU, a few of them under way while the host reads the oldest."""
    device = model.device
    under_way: deque[tuple[Readback, int]] = deque()

    def launch(tokens: list[int] | None, step: int) -> None:
        with device.lock:
            readback = device.readback(16)

            def draw(outputs: Outputs) -> list[Command]:
                logits = outputs[0]
                assert isinstance(logits, View)
                return [
                    *sampler.commands(logits.last_row(), step),
                    Copy(sampler.token.buffer, readback.staging, 4),
                    Copy(sampler.logprob.buffer, readback.staging, 4, target_offset=4),
                ]

            submission = model.launch(tokens or sampler.token, draw)
            readback.begin()
            under_way.append((readback, submission))

    def has_arrived() -> bool:
        with device.lock:
            return under_way[0][0].is_ready()

    def read() -> Drawn:
        readback, submission = under_way.popleft()
        with device.lock:
            if not readback.is_ready():
                counters.throttles += bool(under_way)
                counters.stalls += not under_way
            data = readback.peek(0, 8, submission)
            readback.release()
        token, logprob = np.frombuffer(data, np.int32, 1)[0], np.frombuffer(data, np.float32, 1, 4)[0]
        return Drawn(int(token), float(logprob))

    try:
        *early, last = model.chunks(ids)
        for chunk in early:
            model.launch(chunk)
        launch(last, 0)
        step = 1
        while under_way:
            if step < count and len(under_way) < IN_FLIGHT:
                launch(None, step)
                step += 1
            if len(under_way) == IN_FLIGHT or step == count or has_arrived():
                yield read()
    finally:
        while under_way:
            read()
