"""The scheduler of an engine: its thread starts the jobs of a queue, takes turns for all requests (`Turns`),
hands tokens to their readers, and ends requests one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic

from pteron.errors import DeviceError, InputError, OutOfMemory
from pteron.llm.cache.pool import Lease
from pteron.llm.engine.answer import Job, Notifier
from pteron.llm.engine.grammar_masks import MaskWorkers
from pteron.llm.engine.load import Totals
from pteron.llm.engine.queue import PrefixWaitlist, RequestQueue
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import Arrived, RequestFailed, StepperChoice, Submission
from pteron.llm.engine.turns import Turns
from pteron.llm.sampling import Drawn
from pteron.llm.text_model import TextModel

_POOL_RETRY = 0.02  # seconds until the next lease is tried, after all sequences were in use
_GATHER_RETRY = 0.002  # seconds until the next try, while a stepper delays requests to gather them
_SLEEP_MAX = 3600.0  # seconds


class Scheduler(Turns):
    """Runs in one thread until it is stopped. Other threads put jobs into `queue` and call `wake`."""

    def __init__(self, llm: TextModel, stepping: StepperChoice, running: int, queue: RequestQueue) -> None:
        self._wakeups: SimpleQueue[bool] = SimpleQueue()  # safe in finalizers; True: a job was cancelled
        self._masks = MaskWorkers(self.wake)
        super().__init__(stepping.stepper, llm.model.pace, self._masks.request)
        self.queue = queue
        self.totals = Totals()
        self.is_stopping = False
        self.idle = Notifier()  # notified when no job is open
        # Not the LLM itself: a referenced LLM would never be collected, and its engine would never stop.
        self._model, self._pool = llm.model, llm.pool
        self._tokenizer, self._eos_ids = llm.tokenizer, frozenset(llm.eos_ids)
        self._speculator, self._image_prefill = llm.speculator, llm.image_prefill
        self.prefix_waits = PrefixWaitlist(self._pool)
        self.stepping = stepping
        self._running_max = min(running, self._pool.sequences_max)
        self._deadline = inf  # the earliest of all jobs taken from the queue
        self._pool_full_until = 0.0

    def wake(self, *, is_cancelled: bool = False) -> None:
        """Wake the thread: it looks for new work, and ends jobs if one was cancelled."""
        self._wakeups.put(is_cancelled)

    def run(self) -> None:
        """Work until stopped. No job is open afterwards."""
        error: BaseException = DeviceError("the engine was closed before the answer was complete")
        try:
            while not self.is_stopping:
                self._expire()
                self._admit()
                self._prepare()
                self._hand_out(self.turn())
        except BaseException as unforeseen:  # reported to all readers, which would wait for ever otherwise
            error = unforeseen
        self._masks.close()
        self.queue.refuse(f"the engine has ended: {error}")
        self._end_all(error)
        self.drain()

    # Admission ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        """End the jobs that are cancelled or past their deadline."""
        is_cancelled = self._drain_wakeups()
        now = monotonic()
        if not is_cancelled and now < min(self._deadline, self.queue.deadline):
            return
        for request in self.running.copy():
            if reason := request.job.reason_to_end(now):
                self._end(request, reason)
        waiting = [job for job in self.prefix_waits.jobs if job.reason_to_end(now)]
        for job in (*waiting, *self.queue.expire(now)):
            self._end_job(job, job.reason_to_end(now) or "time")
        taken = (*(request.job for request in self.running), *self.prefix_waits.jobs)
        self._deadline = min((job.deadline for job in taken), default=inf)

    def _drain_wakeups(self) -> bool:
        """Whether any wake-up was for a cancelled job."""
        is_cancelled = False
        while not self._wakeups.empty():
            is_cancelled |= self._wakeups.get()
        return is_cancelled

    def _sleep(self) -> None:
        """Sleep until a wake-up, a deadline, or the next attempt to get a sequence."""
        self._arrived = None  # the time until the next arrival does not measure the GPU's speed
        until = min(self._deadline, self.queue.deadline)
        has_place = len(self.running) + len(self.prefix_waits) < self._running_max
        if len(self.prefix_waits) or (len(self.queue) and has_place):
            until = min(until, self._pool_full_until)
        if any(request.can_step for request in self.running):
            until = min(until, monotonic() + _GATHER_RETRY)
        wait = min(max(0.0, until - monotonic()), _SLEEP_MAX)
        with suppress(Empty):
            self._wakeups.put(self._wakeups.get(timeout=wait))  # put back for `_expire`

    def _admit(self) -> None:
        """Start requests, up to the limit of running requests and of sequences in the pool. A request waits
        if another one is prefilling its prefix; it does not delay the requests behind it."""
        for waiting in self.prefix_waits.jobs:
            if monotonic() < self._pool_full_until:
                return
            self._admit_one(waiting)
        while (
            len(self.running) + len(self.prefix_waits) < self._running_max
            and monotonic() >= self._pool_full_until
        ):
            job = self.queue.take()
            if job is None:
                return
            self._deadline = min(self._deadline, job.deadline)
            if reason := job.reason_to_end(monotonic()):
                self._end_job(job, reason)
            else:
                self._admit_one(job)

    def _admit_one(self, job: Job) -> None:
        try:
            if self.prefix_waits.tokens_awaited(job, self.running):
                return
            lease = self._lease(job)
            if lease is not None:
                self.prefix_waits.drop(job)
                self._start(job, lease)
        except Exception as error:
            self._end_job(job, "error", error)
            self._check_device(error)

    def _lease(self, job: Job) -> Lease | None:
        """A sequence for a job; without one the job goes on the waitlist."""
        try:
            return self._pool.lease(job.request.ids, job.request.adapter)
        except (InputError, OutOfMemory) as error:  # all sequences are in use
            if isinstance(error, OutOfMemory) and not self.running:
                raise
            self._pool_full_until = monotonic() + _POOL_RETRY
            self.prefix_waits.add(job)
            return None

    def _start(self, job: Job, lease: Lease) -> None:
        try:
            if self.running:
                self.stepping.prepare_batch([*(request.model for request in self.running), lease.model])
                self.stepper = self.stepping.stepper
            request = RunningRequest.begin(
                job, lease, self._tokenizer, self._eos_ids, self._speculator, self._image_prefill
            )
        except BaseException:
            lease.close()
            raise
        job.started = monotonic()
        job.statistics.queue_seconds = job.started - job.submitted
        self.begin(request)
        self.totals.add_started(job.statistics)

    # Submission --------------------------------------------------------------------------------

    def _submit(self, submit: Callable[[], Submission], *requests: RunningRequest) -> bool:
        with self._isolated(*requests):
            return super()._submit(submit)
        return False

    def _prepare(self) -> None:
        is_prepared = False
        while not is_prepared:  # again without the request that failed, if one did
            with self._isolated():
                self.stepper.prepare(self.running)
                is_prepared = True

    # Results -----------------------------------------------------------------------------------

    def collect(self) -> Arrived:
        """Wait for the oldest submission, or sleep if there is nothing to do."""
        if not self.in_flight:
            if self.is_waiting or not self.running:
                self._sleep()
            return []
        requests = self.in_flight[0].requests
        with self._isolated(*requests):
            try:
                return super().collect()
            finally:
                for request in requests:
                    if request.reason and not request.in_flight:
                        request.close()
        return []

    def _hand_out(self, arrived: Arrived) -> None:
        """Hand tokens to their readers, and end the requests whose text is complete."""
        for request, drawn in arrived:
            if not request.reason:
                with self._isolated(request):
                    self._deliver(request, drawn)
                if request.reason:
                    self._end(request, request.reason)

    def _deliver(self, request: RunningRequest, drawn: list[Drawn]) -> None:
        before = len(request.drawn)
        pieces = request.take(drawn)
        self.totals.add_tokens(len(request.drawn) - before)
        if pieces:
            request.job.add(pieces)
        self.begin_mask(request)

    # End ---------------------------------------------------------------------------------------

    @contextmanager
    def _isolated(self, *requests: RunningRequest) -> Iterator[None]:
        """All work for requests runs within this: an error of any kind ends those that it is for, or the one
        that it names, and the others go on. An error of work that is for none of them ends the engine."""
        try:
            yield
        except RequestFailed as failed:
            self._fail((failed.request,), failed.__cause__ or failed)
        except Exception as error:
            if not requests:
                raise
            self._fail(requests, error)

    def _fail(self, requests: Sequence[RunningRequest], error: BaseException) -> None:
        for request in requests:
            self._end(request, "error", error)
        self._check_device(error)

    def _end(self, request: RunningRequest, reason: str, error: BaseException | None = None) -> None:
        """End a request at once; what is in flight for it is collected in its turn."""
        if request not in self.running:
            return
        request.reason = reason
        # Counted first: a reader who sees that no request is running also sees how they ended.
        self.totals.add_ended(reason, monotonic() - request.job.started)
        self.running.remove(request)
        self._prompts.drop(request)
        self._pool_full_until = 0.0
        request.release()
        if not request.in_flight:
            request.close()
        self._close_job(request.job, reason, error)

    def _end_job(self, job: Job, reason: str, error: BaseException | None = None) -> None:
        """End a job that has not started."""
        self.totals.add_ended(reason, None)
        job.statistics.queue_seconds = monotonic() - job.submitted
        self.prefix_waits.drop(job)
        self._close_job(job, reason, error)

    def _close_job(self, job: Job, reason: str, error: BaseException | None) -> None:
        self.queue.open.discard(job)
        job.end(reason, error)
        if not self.queue.open:
            self.idle.notify()

    def _end_all(self, error: BaseException) -> None:
        for request in self.running.copy():
            self._end(request, "error", error)
        for job in (*self.prefix_waits.jobs, *self.queue.clear()):
            self._end_job(job, "error", error)

    def _check_device(self, error: BaseException) -> None:
        """If the device is lost, all running requests end."""
        if not self._model.device.is_usable:
            for request in self.running.copy():
                self._end(request, "error", error)
