"""Turns of requests: submit ahead, then wait for the oldest submission. Submissions in flight form one queue,
in the order in which the GPU runs them.

In: running requests. Out: the tokens that they draw. An engine's thread takes turns for many requests
(`Scheduler`), and the thread of a caller for one (`run_alone`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from time import perf_counter

from pteron.errors import PteronError
from pteron.llm.engine.grammar_masks import PendingMask
from pteron.llm.engine.queue import PrefillQueue
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import Arrived, Part, Stepper, Submission
from pteron.llm.grammar import Matcher
from pteron.llm.model import Pace
from pteron.llm.output import Piece
from pteron.llm.sampling import Drawn

_in_flight = attrgetter("in_flight")
SUBMISSIONS = 2  # in flight: the GPU has one more while the host reads the oldest


@dataclass(slots=True)
class LoopCounters:
    """Counters of a decode loop. A stall is a read during which the GPU had no further work queued."""

    tokens: int = 0
    stalls: int = 0
    throttles: int = 0  # reads that waited while further steps were queued: the GPU is the slower side
    submissions: int = 0


class Turns:
    """Runs requests in turns, on the thread that calls `turn`: an engine's, or that of a caller with one
    request. A thread switch per token would take longer than all other host work of a step.

    With one prompt, or one part of requests that step together, two submissions are in flight. With more,
    each part has one, and all prompts together have one: a long prompt delays a step by only one chunk.
    """

    def __init__(
        self,
        stepper: Stepper,
        pace: Pace,
        request_mask: Callable[[Matcher], PendingMask],
        counters: LoopCounters | None = None,
    ) -> None:
        self.running: list[RunningRequest] = []
        self.in_flight: deque[Submission] = deque()
        self.counters = counters or LoopCounters()
        self.stepper = stepper
        self._pace = pace
        self._prompts = PrefillQueue()
        self._request_mask = request_mask
        self._arrived: float | None = None  # when the last submission did, if the GPU has been busy since

    def begin(self, request: RunningRequest) -> None:
        self.running.append(request)
        self._prompts.add(request)

    def turn(self) -> Arrived:
        """Submit prompt chunks and steps, then wait for the oldest submission; returns its tokens. The caller
        passes them to `RunningRequest.take`, and then calls `begin_mask`."""
        parts = self.stepper.parts(self.running)
        is_prefilling = bool(self._prompts)
        # A request whose mask is pending should not wait for long bursts of others; there is none if each
        # request is a part.
        is_waiting = len(parts) < len(self.running) and self.is_waiting
        competing = len(parts) + is_prefilling + is_waiting
        depth = SUBMISSIONS if competing == 1 else 1
        if is_prefilling:
            while self._prompts and self._chunks_in_flight() < depth:
                self._prefill_chunk()
            parts = self.stepper.parts(self.running)
        # Split the steps, so that all parts together take as long as one part alone would.
        most = max(1, self._pace.steps // max(1, competing))
        self._submit_steps(parts, depth, most)
        while depth > len(self.in_flight) and (parts := self.stepper.parts(self.running)):
            self._submit_steps(parts, depth, most)
        return self.collect()

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for its mask."""
        return bool([each for each in self.running if each.matcher and each.waits_for_mask])

    def begin_mask(self, request: RunningRequest) -> None:
        """Request the mask of a request's next step; the model reads the last token meanwhile."""
        is_known = request.step == len(request.drawn)
        if request.matcher and is_known and not request.reason and request.mask is None:
            request.mask = self._request_mask(request.matcher)
            if request.drawn:
                self.stepper.prefill_ahead(request)

    def add(self, submission: Submission) -> None:
        for request in submission.requests:
            request.in_flight += 1
        self.counters.submissions += 1
        self.in_flight.append(submission)

    def collect(self) -> Arrived:
        """Remove the oldest submission, wait for it, and return its tokens."""
        submission = self.in_flight.popleft()
        has_masks = any(request.matcher for request in submission.requests)  # each step waits for the host
        try:
            if submission.steps and (has_masks or not submission.is_ready()):
                self._count_wait(submission)
            arrived = submission.wait()
        finally:
            for request in submission.requests:
                request.in_flight -= 1
        if submission.reached:
            submission.requests[0].job.statistics.read_tokens = submission.reached
        before, self._arrived = self._arrived, perf_counter()
        if before is not None:
            seconds = self._arrived - max(before, submission.started)
            if submission.note_seconds:
                submission.note_seconds(seconds)
            elif submission.steps and not has_masks:
                self._pace.update(submission.steps, seconds)
        return arrived

    def drain(self) -> None:
        """Wait for all that is in flight. Its tokens are not wanted, nor its errors."""
        while self.in_flight:
            with suppress(PteronError):
                self.collect()

    def _submit_steps(self, parts: Sequence[Part], depth: int, most: int) -> None:
        """Submit up to `most` steps of every part with fewer than `depth` submissions in flight."""
        for part in parts:
            if min(map(_in_flight, part)) < depth:
                self._submit(partial(self.stepper.step, part, most), *part)

    def _chunks_in_flight(self) -> int:
        return sum(not submission.steps for submission in self.in_flight)

    def _prefill_chunk(self) -> None:
        request = self._prompts.take()
        if self._submit(partial(self._prefill, request), request) and not request.is_prefilled:
            self._prompts.put_back(request)

    def _prefill(self, request: RunningRequest) -> Submission:
        self.begin_mask(request)
        return replace(self.stepper.prefill(request), reached=request.submitted)

    def _submit(self, submit: Callable[[], Submission], *requests: RunningRequest) -> bool:
        """Submit work for requests; returns whether that went well."""
        self.add(submit())
        return True

    def _count_wait(self, submission: Submission) -> None:
        if self.in_flight:
            self.counters.throttles += 1
            return
        self.counters.stalls += 1
        for request in submission.requests:
            request.job.statistics.stalls += 1


def run_alone(
    request: RunningRequest, stepper: Stepper, counters: LoopCounters | None = None
) -> Generator[tuple[Drawn, list[Piece]], None, None]:
    """Run one request on the calling thread: its tokens, and the pieces of text that each completes. When
    the generator ends, nothing is in flight."""
    turns = Turns(stepper, request.model.pace, partial(PendingMask, is_lazy=True), counters)
    turns.begin(request)
    try:
        while not request.reason:
            for _, drawn in turns.turn():
                for each in drawn:
                    if not request.reason:
                        yield each, request.take((each,))
            if request.matcher:
                turns.begin_mask(request)
    finally:
        turns.drain()
