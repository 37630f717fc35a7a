"""generate_step: generates tokens with a LanguageModel and a Sampler, without tokenizer and pool."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pteron.errors import InputError
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import stepper_for
from pteron.llm.engine.turns import LoopCounters, run_alone
from pteron.llm.grammar import Matcher
from pteron.llm.model import LanguageModel
from pteron.llm.request import Request
from pteron.llm.sampling import Drawn, Sampler

__all__ = ["LoopCounters", "generate_step"]


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
    """Prefill `ids`, then draw up to `count` tokens, or fewer if the context is full.

    With `resident` the loop stays on the GPU: it draws each token and feeds it to the next step, several
    steps per submission. The host submits ahead and reads tokens as they arrive. This is the default if the
    program allows it.

    When the iterator ends, is closed or fails, `model.position` is after the tokens that the KV cache is
    certain to hold: all except the last drawn token, which the model has not read yet. A model that cannot be
    rewound (`model.can_rewind`) is at position 0 if it has read more than these. Any other use of the model
    takes over the sequence, and this iterator then fails at its next token. `user` is the caller's claim on
    the sequence, if it has one already (`LanguageModel.claim`).

    With a `matcher`, its grammar allows every token, and the last token completes the text; the sampler must
    have a mask. The loop then runs one step at a time: the host computes the next mask while the GPU runs the
    model.
    """
    ids = model.ids(ids)
    if not ids:
        raise InputError("generation starts from at least one token")
    stepper = stepper_for(model, resident)
    user = model.claim() if user is None else user
    model.check_room(len(ids))
    start = model.position + len(ids)
    room = model.context - start + 1 if model.context else count
    counters = counters or LoopCounters()
    job = Job(Request(tuple(ids), max(1, count), sampler.sampling))
    running = RunningRequest(job, model, user, sampler, ids, start, count, room, matcher)
    tokens = run_alone(running, stepper, counters)
    try:
        for drawn, _ in tokens if count > 0 else ():
            counters.tokens += 1
            yield drawn
    finally:
        try:
            tokens.close()
        finally:
            model.rewind(user)
