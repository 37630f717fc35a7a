"""One text goes on: a prompt's tokens -> pieces of text, on a sequence that is lent while it lasts."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

from pteron.llm.generate import LoopCounters, generate_step
from pteron.llm.grammar import Grammar
from pteron.llm.output import Piece, Statistics, TextAssembler
from pteron.llm.sampling import Sampling
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
    counters, count = LoopCounters(), asked.max_new_tokens
    room = model.context - len(asked.ids) + 1 if model.context else count
    telling = TextAssembler(llm.tokenizer, asked.stop, asked.stop_ids, count, room)
    started = time.perf_counter()
    steps = generate_step(
        model,
        sampler,
        asked.ids[reused:],
        count,
        resident=asked.resident,
        counters=counters,
        user=lease.user,
        matcher=matcher,
    )
    try:
        for step in steps:
            now = time.perf_counter() - started
            if not telling.drawn:
                statistics.prompt_seconds = now
            statistics.decode_seconds = now - statistics.prompt_seconds
            pieces = telling.push(step, is_whole=matcher is not None and matcher.is_finished)
            statistics.new_tokens, statistics.finish_reason = len(telling.drawn), telling.reason
            yield from pieces
            if telling.reason:
                break
    finally:
        steps.close()  # ends the loop, and what is under way
        statistics.stalls = counters.stalls
        sampler.close()
        lease.close()
