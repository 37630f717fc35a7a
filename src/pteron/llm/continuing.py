"""One text goes on: a prompt's tokens -> pieces of text, on a sequence that is lent while it lasts."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

from pteron.llm.generate import LoopCounters, generate_step
from pteron.llm.grammar import Grammar
from pteron.llm.pieces import Piece, Statistics
from pteron.llm.sampling import Sampling
from pteron.llm.stopping import StopScanner
from pteron.llm.text_model import TextModel


@dataclass(frozen=True, slots=True)
class Continuation:
    """What is asked of a model: everything is checked, nothing has begun."""

    ids: tuple[int, ...]  # the prompt's, as the context holds them
    dropped: int  # of the prompt's tokens, for which it had no room
    max_new_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    stop_ids: frozenset[int]
    grammar: Grammar | None = None
    resident: bool | None = None


def continued(llm: TextModel, asked: Continuation) -> Generator[Piece, None, None]:
    """The pieces of a text as they become known; the model's `statistics` tell what it took."""
    lease = llm.pool.lease(asked.ids)
    model = lease.model
    reused = model.resume(asked.ids, lease.user)
    llm.statistics = statistics = Statistics(len(asked.ids), reused, asked.dropped)
    matcher = asked.grammar.matcher() if asked.grammar else None
    sampler = model.sampler(asked.sampling, masked=matcher is not None)
    sampler.remember(asked.ids)
    counters = LoopCounters()
    stream, scanner = llm.tokenizer.stream(), StopScanner(asked.stop)
    drawn: list[int] = []
    started = time.perf_counter()
    steps = generate_step(
        model,
        sampler,
        asked.ids[reused:],
        asked.max_new_tokens,
        resident=asked.resident,
        counters=counters,
        user=lease.user,
        matcher=matcher,
    )
    try:
        for step in steps:
            now = time.perf_counter()
            if not drawn:
                statistics.prompt_seconds = now - started
            statistics.decode_seconds = now - started - statistics.prompt_seconds
            drawn.append(step.token)
            statistics.new_tokens = len(drawn)
            if step.token in asked.stop_ids:
                statistics.finish_reason = "stop"
                break
            text = scanner.push(stream.push(step.token))
            yield Piece(step.token, text, step.logprob, step.top)
            if scanner.is_stopped:
                statistics.finish_reason = "stop"
                break
        else:
            is_whole = matcher is not None and matcher.is_finished
            is_full = len(drawn) < asked.max_new_tokens
            statistics.finish_reason = "stop" if is_whole else "context" if is_full else "length"
        rest = "" if scanner.is_stopped else scanner.push(stream.finish()) + scanner.finish()
        if rest:
            yield Piece(drawn[-1], rest, 0.0)
    finally:
        steps.close()  # ends the loop, and what is under way
        statistics.stalls = counters.stalls
        sampler.close()
        lease.close()
