"""Submissions in flight, in the order the GPU runs them: submit ahead, then wait for the oldest.

In: submissions of a stepper. Out: the tokens that they draw. A scheduler with many requests and a lone
request on its caller's thread (`decode_alone`) both work through a Pipeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from pteron.errors import DeviceError
from pteron.llm.engine.grammar_masks import PendingMask
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import Arrived, Stepper, Submission
from pteron.llm.model import Pace
from pteron.llm.sampling import Drawn

SUBMISSIONS = 2  # in flight: the GPU has one more while the host reads the oldest


@dataclass(slots=True)
class LoopCounters:
    """Counters of a decode loop. A stall is a read during which the GPU had no further work queued."""

    tokens: int = 0
    stalls: int = 0
    throttles: int = 0  # reads that waited while further steps were queued: the GPU is the slower side
    submissions: int = 0


class Pipeline:
    """The submissions in flight of one thread."""

    def __init__(self, pace: Pace, counters: LoopCounters | None = None) -> None:
        self.in_flight: deque[Submission] = deque()
        self.counters = counters or LoopCounters()
        self.pace = pace
        self._arrived: float | None = None  # when the last submission did, if the GPU has been busy since

    def __len__(self) -> int:
        return len(self.in_flight)

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
        before, self._arrived = self._arrived, perf_counter()
        if before is not None:
            seconds = self._arrived - max(before, submission.started)
            if submission.note_seconds:
                submission.note_seconds(seconds)
            elif submission.steps and not has_masks:
                self.pace.update(submission.steps, seconds)
        return arrived

    def idle(self) -> None:
        """Record that the GPU has no work: the time until the next arrival does not measure its speed."""
        self._arrived = None

    def _count_wait(self, submission: Submission) -> None:
        if self.in_flight:
            self.counters.throttles += 1
            return
        self.counters.stalls += 1
        for request in submission.requests:
            request.job.statistics.stalls += 1


def decode_alone(
    request: RunningRequest, stepper: Stepper, counters: LoopCounters | None = None
) -> Generator[Drawn, None, None]:
    """Prefill and decode one request on the calling thread: a thread switch per token would take longer than
    all other host work of a step. The caller passes each token to `request.take` before it requests the next.
    When the generator ends, nothing is in flight.
    """
    pipeline = Pipeline(request.model.pace, counters)
    part = (request,)
    try:
        while not request.reason:
            if request.matcher and request.mask is None and request.step == len(request.drawn):
                request.mask = PendingMask(request.matcher, is_lazy=True)  # while the GPU runs what follows
                if request.drawn:
                    stepper.prefill_ahead(request)
            while request.chunks and len(pipeline) < SUBMISSIONS:
                pipeline.add(stepper.prefill(request))
            while len(pipeline) < SUBMISSIONS and stepper.parts(part):
                pipeline.add(stepper.step(part, pipeline.pace.steps))
            for _, drawn in pipeline.collect():
                for each in drawn:
                    if not request.reason:
                        yield each
    finally:
        while len(pipeline):
            with suppress(DeviceError):  # of steps whose tokens are not wanted
                pipeline.collect()
