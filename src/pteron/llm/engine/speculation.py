"""Speculative decoding: tokens are proposed, and one step of the model verifies all of them.

In: the tokens of a sequence. Out: proposed tokens. Each row of a verification draws its token with the noise
of its own step, as plain decoding does: noise depends on seed, step and token only. A proposal is accepted if
it equals the draw, so the output has the distribution of plain decoding, and for one seed the same tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from pteron.errors import InputError, OutOfMemory, PteronError
from pteron.gpu import Buffer, Copy, Replay, WordIncrements
from pteron.host.tensors import View
from pteron.llm.cache.pool import SequencePool
from pteron.llm.engine.verifier import ROWS, Verifier
from pteron.llm.model import LanguageModel, last_row
from pteron.llm.sampling import Sampling

LOOKUP = "lookup"  # the name of prompt lookup, beside names of draft models
NGRAMS = (4, 3, 2)  # lengths of the suffix that is looked up, longest first
RATE, RATE_WEIGHT = 0.6, 2.0  # acceptance rate that is assumed first, and its weight in proposals
SCORED_RATE = 0.2  # the same for proposals that are scored before any is verified
DECAY = 0.9  # of counts, at each verification
COST, ROW_COST = 1.8, 0.2  # assumed costs of a verification and of each row, in steps, until measured
MISS_STEPS = (4, 8, 16)  # plain steps after each miss: no proposal
LOSS_STEPS, LOSS_STEPS_MAX = 16, 256  # plain steps after a verification that does not pay; they double
_ENDLESS = 1 << 62  # a step that no text reaches


class Proposer(ABC):
    """Proposes the next tokens of one sequence."""

    is_scored = False  # whether `score` can be used

    @abstractmethod
    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow the prompt and the drawn tokens; [] if none is likely."""

    def score(self, drawn: Sequence[int]) -> list[bool]:
        """Of the tokens drawn since the last call: whether each is the one that would have been proposed,
        without those for which nothing would have been."""
        return []

    def close(self) -> None:  # noqa: B027  # most proposers need nothing
        """Free what proposals need."""


class Lookup(Proposer):
    """Prompt lookup: proposes what followed the last occurrence of the sequence's suffix."""

    is_scored = True

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._prompt_tokens = len(prompt)
        self._following: dict[tuple[int, ...], int] = {}  # n-gram -> index of the token after it
        self._extend(prompt)

    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        self._extend(drawn[len(self._tokens) - self._prompt_tokens :])
        start = self._match()
        if start is None:
            return []
        period = len(self._tokens) - start  # a match that reaches the end repeats with its period
        return [self._tokens[start + index % period] for index in range(most)]

    def score(self, drawn: Sequence[int]) -> list[bool]:
        found = []
        for token in drawn[len(self._tokens) - self._prompt_tokens :]:
            start = self._match()
            if start is not None:
                found.append(self._tokens[start] == token)
            self._extend([token])
        return found

    def _match(self) -> int | None:
        """The place after the last occurrence of the longest suffix that occurred before."""
        places = (self._following.get(tuple(self._tokens[-size:])) for size in NGRAMS)
        return next((place for place in places if place is not None), None)

    def _extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            end = len(self._tokens)
            for size in NGRAMS:
                if size <= end:
                    self._following[tuple(self._tokens[end - size : end])] = end
            self._tokens.append(token)


class Draft(Proposer):
    """Proposes what a smaller model draws from the same seed and steps."""

    def __init__(
        self, pool: SequencePool, prompt: Sequence[int], sampling: Sampling, vocabulary: int
    ) -> None:
        self._lease = pool.lease(prompt)
        self._model = model = self._lease.model
        self._prompt = list(prompt)
        self._vocabulary = vocabulary
        plain = replace(sampling, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
        self._sampler = model.sampler(replace(plain, logit_bias=(), top_logprobs=0))

    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        tokens, model = [*self._prompt, *drawn], self._model
        if model.context:
            most = min(most, model.context - len(tokens))
        if most < 1 or max(tokens) >= model.vocabulary:
            return []
        with model.device.lock:
            found = self._draw(tokens, len(drawn), most)
        for index, token in enumerate(found[:-1]):
            model.record_token(len(tokens) + index, token)
        valid = (index for index, token in enumerate(found) if token >= self._vocabulary)
        return found[: next(valid, len(found))]

    def close(self) -> None:
        self._sampler.close()
        self._lease.close()

    def _draw(self, tokens: list[int], step: int, count: int) -> list[int]:
        """Draw `count` tokens after the given ones, from the step on."""
        model, sampler, device = self._model, self._sampler, self._model.device
        start = model.resume(tokens, self._lease.user)
        *chunks, last = model.chunks(tokens[start:])
        for chunk in chunks:
            model.submit(chunk)
        readback = device.readback(sampler.drawn_bytes)
        copy = Copy(sampler.drawn, readback.staging, sampler.drawn_bytes)
        number = model.submit(last, lambda outputs: [*sampler.commands(last_row(outputs), step), copy])
        done = 1
        while done < count:
            first = step + done
            sampler.set_step(first)

            def draw(logits: View, token: Buffer, growing: WordIncrements | None, at: int = first) -> Replay:
                return sampler.replay(logits, at, token, growing)

            number, steps = model.submit_steps(sampler.drawn_at(first - 1), count - done, draw, [copy])
            done += steps
        sampler.set_step(step + count)
        readback.begin()
        data = readback.peek(0, sampler.drawn_bytes, number)
        readback.release()
        return [sampler.read(data, step + index).token for index in range(count)]


class Speculator:
    """Speculative decoding for the requests of a model: what they share."""

    def __init__(self, model: LanguageModel, draft: SequencePool | None = None) -> None:
        self.verifier = Verifier(model)
        if model.context:
            self.verifier.compile(model.context)
        self.proposed = self.accepted = 0  # tokens
        self.seconds: dict[int, float] = {}  # of a verification with its proposal, by rows: a moving average
        self._vocabulary = model.vocabulary
        self._pace = model.pace
        self._draft = draft
        self._compiled: set[int] = set()  # rows whose first verification is over
        if draft is not None:
            self._load_draft(draft)

    def _load_draft(self, draft: SequencePool) -> None:
        """Draw tokens once. A weight is uploaded when a launch first binds it: now, on the thread that loads
        the model, and not at the first proposal, while other requests of the engine wait."""
        first = Draft(draft, [0], Sampling(), self._vocabulary)
        try:
            first.propose([], 2)
        finally:
            first.close()

    def begin(self, prompt: Sequence[int], sampling: Sampling) -> Speculation | None:
        """The speculation of a new request; None if the draft model has no sequence for it."""
        if self._draft is None:
            return Speculation(self, Lookup(prompt))
        try:
            return Speculation(self, Draft(self._draft, prompt, sampling, self._vocabulary))
        except (InputError, OutOfMemory):
            return None

    def note_seconds(self, rows: int, seconds: float) -> None:
        """Note the time of a verification. The first of its size may plan and compile and is left out."""
        if rows in self._compiled:
            known = self.seconds.get(rows, seconds)
            self.seconds[rows] = known + 0.2 * (seconds - known)
        self._compiled.add(rows)

    def cost(self, rows: int) -> float:
        """The time of a verification, in plain steps."""
        known = max((each for each in self.seconds if each <= rows), default=1)
        measured = self.seconds[known] / self._pace.seconds if known > 1 and self._pace.seconds else COST
        return measured + ROW_COST * (rows - known)

    def close(self) -> None:
        self.verifier.close()


class Speculation:
    """The proposals of one request. Plain steps run up to the step `until`; then a proposal is verified if it
    is expected to pay.

    Proposals of prompt lookup cost nothing. So those that would have been made are compared with what plain
    steps draw, and none is verified before this shows that it pays: plain steps need not wait for the host.
    Proposals of a draft model are judged by verifications alone; the first is a trial."""

    def __init__(self, speculator: Speculator, proposer: Proposer) -> None:
        self.speculator = speculator
        self.proposal: list[int] = []  # to be verified by the next step
        self.started = 0.0  # when the proposal was begun
        self.is_watching = False  # plain steps run until scores say that proposals would pay
        self.until = 0
        self._others = 0
        self._proposer = proposer
        rate = SCORED_RATE if proposer.is_scored else RATE
        self._accepted, self._tried = rate * RATE_WEIGHT, RATE_WEIGHT  # decaying counts
        self._misses = 0  # in a row
        self._loss_steps = LOSS_STEPS
        self._is_trial = False  # a pause is over: measure the acceptance rate again
        self._is_begun = False  # a proposal was verified
        if proposer.is_scored:
            self._watch()

    def propose(self, drawn: Sequence[int], room: int, others: int) -> None:
        """Make a proposal of at most `room` tokens, or plan plain steps. `others` is the number of further
        requests that a plain step would serve in the same batch."""
        step, self._others = len(drawn), others
        if step < self.until:
            return
        if room < 1:
            self.until = step + 1
            return
        rows = ROWS[1] if self._is_trial else self.best_rows(others)
        if rows == 1:
            self._pause(step, others)
            return
        self.started = perf_counter()
        try:
            self.proposal = self._proposer.propose(drawn, min(rows - 1, room))
        except PteronError:  # of the draft model: the request continues without it
            self.until = step + room + 1
            return
        if not self.proposal:
            wait = MISS_STEPS[min(self._misses, len(MISS_STEPS) - 1)]
            self.until = step + wait
            self._misses += 1
            if self._proposer.is_scored:
                self._watch()

    def observe(self, drawn: Sequence[int]) -> None:
        """Score proposals by tokens that plain steps drew; if they pay, speculate from the next token on."""
        if not self.is_watching:
            return
        found = self._proposer.score(drawn)
        for is_right in found:
            self._accepted, self._tried = DECAY * self._accepted + is_right, DECAY * self._tried + 1
        if found and found[-1] and self.best_rows(self._others) > 1:
            self.is_watching, self.until = False, 0

    def best_rows(self, others: int = 0) -> int:
        """The rows of a verification that give the most tokens per time; 1: plain steps give more."""
        gains = {rows: self._gain(rows, self._accepted / self._tried, others) for rows in ROWS}
        best = max(ROWS, key=gains.__getitem__)
        return best if gains[best] > 1 else 1

    def _gain(self, rows: int, acceptance: float, others: int) -> float:
        """Tokens per time beside plain steps. If there are others, a verification takes a step of its own."""
        tokens = sum(acceptance**index for index in range(rows))
        steps = self.speculator.cost(rows) + bool(others)
        return (others + tokens) / (others + 1) / steps

    def take(self, accepted: int) -> None:
        """Note how many proposed tokens were accepted; the proposal is used up."""
        proposed, self.proposal = len(self.proposal), []
        self.speculator.proposed += proposed
        self.speculator.accepted += accepted
        self._accepted = DECAY * self._accepted + accepted
        self._tried = DECAY * self._tried + accepted + (accepted < proposed)
        self._misses = 0
        self._is_trial = False
        if self.best_rows() > 1:
            self._loss_steps = LOSS_STEPS

    def note_seconds(self, rows: int, seconds: float) -> None:
        """Note the time of a verification; before the first of a request, a draft model reads the prompt."""
        if self._is_begun:
            self.speculator.note_seconds(rows, seconds)
        self._is_begun = True

    def _watch(self) -> None:
        self.is_watching, self.until = True, _ENDLESS

    def _pause(self, step: int, others: int) -> None:
        """Plan plain steps, then a trial that outweighs earlier verifications. The trial is late if not even
        full acceptance would pay. No trial is needed where proposals are scored."""
        if self._proposer.is_scored:
            self._watch()
            return
        can_pay = any(self._gain(rows, 1.0, others) > 1 for rows in ROWS)
        self.until = step + (self._loss_steps if can_pay else LOSS_STEPS_MAX)
        self._loss_steps = min(2 * self._loss_steps, LOSS_STEPS_MAX)
        self._accepted, self._tried = RATE_WEIGHT * self._accepted / self._tried, RATE_WEIGHT
        self._is_trial = True

    def close(self) -> None:
        self._proposer.close()
