"""Tokens one after the other: the loop that stays on the GPU, and the same loop step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from pteron.errors import InputError
from pteron.gpu import Command, Copy, Readback, submit
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Sampler

IN_FLIGHT = 4  # steps submitted and not yet read: enough that the GPU never waits for the host


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
    When the iterator ends or is closed, `model.position` is that of the last token drawn, which has not been
    read yet.
    """
    if not ids:
        raise InputError("generation starts from at least one token")
    model.check_room(len(ids))
    start = model.position + len(ids)
    if model.context:
        count = min(count, model.context - start + 1)
    if resident is None:
        resident = model.is_resident
    counters = counters or LoopCounters()
    loop = (
        _resident(model, sampler, ids, count, counters) if resident else _stepwise(model, sampler, ids, count)
    )
    drawn = 0
    try:
        for result in loop:
            drawn += 1
            counters.tokens += 1
            yield result
    finally:
        loop.close()
        model.position = start + max(drawn - 1, 0)


def _stepwise(
    model: LanguageModel, sampler: Sampler, ids: Sequence[int], count: int
) -> Generator[Drawn, None, None]:
    """One step at a time, its logits through the host: right for every program."""
    device = model.device
    stored = sampler.storage
    buffer = device.create_buffer(stored.itemsize * model.vocabulary, "logits")
    try:
        logits = model.prefill(ids)
        for step in range(count):
            device.write(buffer, logits.astype(stored.numpy))
            submit(device, sampler.commands(buffer, 0, step))
            token = int(np.frombuffer(device.read(sampler.buffer(sampler.token), 4), np.int32)[0])
            logprob = float(np.frombuffer(device.read(sampler.buffer(sampler.logprob), 4), np.float32)[0])
            yield Drawn(token, logprob)
            if step + 1 < count:
                logits = model.decode_one_token(token)
    finally:
        device.free(buffer)


def _resident(
    model: LanguageModel, sampler: Sampler, ids: Sequence[int], count: int, counters: LoopCounters
) -> Generator[Drawn, None, None]:
    """Steps follow one another on the GPU, a few of them under way while the host reads the oldest."""
    device = model.device
    under_way: deque[tuple[Readback, int]] = deque()

    def launch(tokens: list[int] | None, step: int) -> None:
        with device.lock:
            readback = device.readback(16)
            width = len(tokens) if tokens else 1
            then: list[Command] = [
                *sampler.commands(*model.logits_place(width), step),
                Copy(sampler.buffer(sampler.token), readback.staging, 4),
                Copy(sampler.buffer(sampler.logprob), readback.staging, 4, target_offset=4),
            ]
            submission = model.launch(tokens or sampler.buffer(sampler.token), then)
            readback.begin()
        under_way.append((readback, submission))

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
            if len(under_way) == IN_FLIGHT or step == count or under_way[0][0].is_ready():
                yield read()
    finally:
        while under_way:
            read()
