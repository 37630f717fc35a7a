"""The loop of an engine's thread, which owns the model: prompts and steps take turns.

What is under way stands in one queue, in the GPU's own order. A turn submits for every part that has nothing
there, then waits for the oldest. So each decoding sequence does its steps once around the queue, and between
them lies one chunk of one prompt: nobody waits longer for a long prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter

from pteron.errors import DeviceError, InputError, OutOfMemory, PteronError
from pteron.llm.engine.grammar_masks import MaskWorkers
from pteron.llm.engine.job import Job
from pteron.llm.engine.load import Totals
from pteron.llm.engine.notify import Notifier
from pteron.llm.engine.prefill_queue import PrefillQueue
from pteron.llm.engine.prefix_wait import PrefixWaitlist
from pteron.llm.engine.queue import RequestQueue
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.stepper_choice import StepperChoice
from pteron.llm.engine.steppers import Submission
from pteron.llm.generate import SUBMISSIONS
from pteron.llm.sequence_pool import Lease
from pteron.llm.submission import Drawn
from pteron.llm.text_model import TextModel

_AGAIN = 0.02  # seconds until the pool is asked again for what others have not given back
_HELD = 0.002  # seconds until a stepper is asked again that holds back what could step
_LONG = 3600.0  # seconds: no rest is longer


class Scheduler:
    """Runs in one thread until it is told to stop. Others put jobs into `waiting` and ring the bell."""

    def __init__(self, llm: TextModel, stepping: StepperChoice, running: int, waiting: RequestQueue) -> None:
        self.waiting = waiting
        self.totals = Totals()
        self.tracks: list[RunningRequest] = []
        self.is_stopping = False
        self.quiet = Notifier()  # told whenever no job is open
        self.log: Callable[[str, int, int], None] | None = None  # what, of which job, how much
        # Not the LLM itself: where nobody else holds it, it ends, and this with it.
        self._model, self._pool = llm.model, llm.pool
        self._tokenizer, self._eos_ids = llm.tokenizer, frozenset(llm.eos_ids)
        self.held = PrefixWaitlist(self._pool)
        self.stepping = stepping
        self._running = min(running, self._pool.bound)
        self._bell: SimpleQueue[bool] = SimpleQueue()  # may be rung in a finalizer; True: one was cancelled
        self._masks = MaskWorkers(partial(self._bell.put, False))
        self._under_way: deque[Submission] = deque()
        self._prompts = PrefillQueue()
        self._deadline = inf  # of all that were taken from the queue, the first
        self._full_until = 0.0  # when the pool is asked again
        self._arrived: float | None = None  # when the last submission did, if the GPU has worked since

    def ring(self) -> None:
        """Have the loop look at what is new."""
        self._bell.put(False)

    def cancelled(self) -> None:
        """Have it end what was cancelled."""
        self._bell.put(True)

    def run(self) -> None:
        """Work until told to stop; no job is open afterwards."""
        error: BaseException = DeviceError("the engine was closed before the answer was complete")
        try:
            while not self.is_stopping:
                self._turn()
        except BaseException as unforeseen:  # told to all who wait, instead of leaving them waiting
            error = unforeseen
        self._masks.close()
        self.waiting.refuse(f"the engine has ended: {error}")
        self._end_all(error)
        while self._under_way:
            with suppress(PteronError):
                self._collect(self._under_way.popleft())

    def _turn(self) -> None:
        self._heed()
        self._admit()
        # Those whose next step is not known yet are to find their turn soon.
        is_unknown = any(track.matcher and track.is_read and not track.can_step for track in self.tracks)
        crowd = len(self._parts()) + bool(self._prompts) + is_unknown
        depth = SUBMISSIONS if crowd == 1 else 1
        while self._prompts and self._chunks_under_way() < depth:
            self._read_on()
        # All together take as long as one that is alone.
        most = max(1, self._model.pace.steps // max(1, crowd))
        for _ in range(depth):
            self._step_on(depth, most)
        if self._under_way:
            self._take_in(self._under_way.popleft())
        elif is_unknown or not self.tracks:
            self._rest()

    # What comes in -----------------------------------------------------------------------------

    def _heed(self) -> None:
        """End what nobody wants any more, or whose time is up."""
        is_cancelled = self._hear()
        now = monotonic()
        if not is_cancelled and now < min(self._deadline, self.waiting.deadline):
            return
        for track in self.tracks.copy():
            if reason := track.job.reason_to_end(now):
                self._end(track, reason)
        held = [job for job in self.held.jobs if job.reason_to_end(now)]
        for job in (*held, *self.waiting.leave(now)):
            self._end_job(job, job.reason_to_end(now) or "time")
        taken = (*(track.job for track in self.tracks), *self.held.jobs)
        self._deadline = min((job.deadline for job in taken), default=inf)

    def _hear(self) -> bool:
        """Whether the bell was rung for one that was cancelled."""
        is_cancelled = False
        while not self._bell.empty():
            is_cancelled |= self._bell.get()
        return is_cancelled

    def _rest(self) -> None:
        """Sleep until the bell is rung, somebody's time is up, or the pool may have room again."""
        self._arrived = None
        until = min(self._deadline, self.waiting.deadline)
        has_place = len(self.tracks) + len(self.held) < self._running
        if len(self.held) or (len(self.waiting) and has_place):
            until = min(until, self._full_until)
        if any(track.can_step for track in self.tracks):
            until = min(until, monotonic() + _HELD)
        wait = min(max(0.0, until - monotonic()), _LONG)
        with suppress(Empty):
            self._bell.put(self._bell.get(timeout=wait))  # to be heard again where it is heeded

    def _admit(self) -> None:
        """Begin as many requests as may run, where the pool has sequences for them. Those that begin with
        what another is reading are held back, and nobody for them."""
        for held in self.held.jobs:
            if monotonic() < self._full_until:
                return
            self._admit_one(held)
        while len(self.tracks) + len(self.held) < self._running and monotonic() >= self._full_until:
            job = self.waiting.take()
            if job is None:
                return
            self._deadline = min(self._deadline, job.deadline)
            if reason := job.reason_to_end(monotonic()):
                self._end_job(job, reason)
            else:
                self._admit_one(job)

    def _admit_one(self, job: Job) -> None:
        """Begin a job, or hold it."""
        is_new = job not in self.held
        if count := self.held.awaits(job, self.tracks):
            if is_new and self.log:
                self.log("hold", job.number, count)
            return
        try:
            lease = self._lease(job)
            if lease is not None:
                self.held.drop(job)
                self._begin(job, lease)
        except Exception as error:
            self._end_job(job, "error", error)
            self._check_device(error)

    def _lease(self, job: Job) -> Lease | None:
        """A sequence for a job, which is held where there is none."""
        try:
            return self._pool.lease(job.request.ids)
        except (InputError, OutOfMemory) as error:  # others have them all
            if isinstance(error, OutOfMemory) and not self.tracks:
                raise
            self._full_until = monotonic() + _AGAIN
            self.held.keep(job)
            return None

    def _begin(self, job: Job, lease: Lease) -> None:
        try:
            if self.tracks:
                self.stepping.gather([*(track.model for track in self.tracks), lease.model])
            track = RunningRequest(job, lease, self._tokenizer, self._eos_ids)
        except BaseException:
            lease.close()
            raise
        job.begun = monotonic()
        self.tracks.append(track)
        self._prompts.add(track)
        self.totals.began(job.statistics)
        if self.log:
            self.log("begin", job.number, len(track.chunks))

    # What goes to the GPU ----------------------------------------------------------------------

    def _parts(self) -> list[tuple[RunningRequest, ...]]:
        """What may step, as the stepper has it."""
        return self.stepping.stepper.parts([track for track in self.tracks if track.is_read])

    def _chunks_under_way(self) -> int:
        return sum(not each.steps for each in self._under_way)

    def _read_on(self) -> None:
        """The next chunk of the prompt whose turn it is."""
        track = self._prompts.take()
        if self._submit("read", partial(self._read, track), track) and not track.is_read:
            self._prompts.go_on(track)

    def _read(self, track: RunningRequest) -> Submission:
        if track.matcher and not track.mask:
            track.mask = self._masks.find(track.matcher)
        return self.stepping.stepper.read(track)

    def _step_on(self, depth: int, most: int) -> None:
        """Steps of every part that has less than so much under way."""
        for part in self._parts():
            if min(track.under_way for track in part) < depth:
                self._submit("step", partial(self.stepping.stepper.launch, part, most), *part)

    def _submit(self, what: str, launch: Callable[[], Submission], *tracks: RunningRequest) -> bool:
        try:
            submission = launch()
        except Exception as error:
            for track in tracks:
                self._end(track, "error", error)
            self._check_device(error)
            return False
        for track in submission.tracks:
            track.under_way += 1
            if self.log:
                self.log(what, track.job.number, submission.steps)
        self._under_way.append(submission)
        return True

    # What comes back ---------------------------------------------------------------------------

    def _take_in(self, submission: Submission) -> None:
        """Wait for the oldest submission, and pass its tokens on."""
        try:
            arrived = self._collect(submission)
        except Exception as error:
            for track in submission.tracks:
                self._end(track, "error", error)
            self._check_device(error)
            return
        before, self._arrived = self._arrived, perf_counter()
        is_paced = submission.steps and not any(track.matcher for track in submission.tracks)
        if is_paced and before is not None:
            self._model.pace.took(submission.steps, self._arrived - before)
        for track, drawn in arrived:
            if not track.reason:
                self._deliver(track, drawn)

    def _collect(self, submission: Submission) -> list[tuple[RunningRequest, list[Drawn]]]:
        try:
            if submission.steps and not self._under_way and not submission.is_ready():
                _stall(submission.tracks)
            return submission.wait()
        finally:
            self._collected(submission.tracks)

    def _collected(self, tracks: Sequence[RunningRequest]) -> None:
        for track in tracks:
            track.under_way -= 1
            if track.reason and not track.under_way:
                track.close()

    def _deliver(self, track: RunningRequest, drawn: list[Drawn]) -> None:
        try:
            self.totals.drew(track.take(drawn))
            if track.matcher and not track.reason:
                track.mask = self._masks.find(track.matcher)
                self.stepping.stepper.ahead(track)
        except Exception as error:
            self._end(track, "error", error)
            return
        if track.reason:
            self._end(track, track.reason)

    # What ends ---------------------------------------------------------------------------------

    def _end(self, track: RunningRequest, reason: str, error: BaseException | None = None) -> None:
        """A track leaves at once; what is under way for it is waited for in its turn, by nobody's need."""
        if track not in self.tracks:
            return
        track.reason = reason
        self.tracks.remove(track)
        self._prompts.drop(track)
        self._full_until = 0.0
        track.release()
        if not track.under_way:
            track.close()
        self._end_job(track.job, reason, error)

    def _end_job(self, job: Job, reason: str, error: BaseException | None = None) -> None:
        if self.log:
            self.log(reason, job.number, 0)
        self.totals.ended(reason, None if job.begun is None else monotonic() - job.begun)
        self.held.drop(job)
        self.waiting.open.discard(job)
        job.end(reason, error)
        if not self.waiting.open:
            self.quiet.tell()

    def _end_all(self, error: BaseException) -> None:
        for track in self.tracks.copy():
            self._end(track, "error", error)
        for job in (*self.held.jobs, *self.waiting.empty()):
            self._end_job(job, "error", error)

    def _check_device(self, error: BaseException) -> None:
        """Where the device is gone, so is all that was on it."""
        if not self._model.device.is_usable:
            for track in self.tracks.copy():
                self._end(track, "error", error)


def _stall(tracks: Sequence[RunningRequest]) -> None:
    """The GPU has no work while the host waits for what these have drawn."""
    for track in tracks:
        track.job.statistics.stalls += 1
