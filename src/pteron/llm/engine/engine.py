"""Engine: serves the requests of many threads with one model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from reprlib import repr as shortened

from pteron.errors import InputError
from pteron.gpu.fork import check_not_forked, in_child
from pteron.llm.arguments import WAITING_MAX, integer
from pteron.llm.engine.answer import Answer, Job
from pteron.llm.engine.load import Load
from pteron.llm.engine.queue import RequestQueue
from pteron.llm.engine.scheduler import Scheduler
from pteron.llm.engine.steppers import StepperChoice
from pteron.llm.request import Request
from pteron.llm.text_model import TextModel


class Engine:
    """A thread that runs a model for requests of any other thread.

        with Engine(llm) as engine:
            for piece in engine.submit(Request(ids)):
                print(piece.text, end="")

    Up to `running` requests run at once (default: the number of the model's sequences), and each gives the
    result that it would give alone. Up to `waiting` more requests wait in the queue; `submit` rejects further
    ones with Busy. Running requests decode as one batch if the program allows it and the GPU has memory for
    their caches in one buffer (see `slots` and `stepping`). `batched=True` allocates the batch at once, or
    raises an error if that is not possible; `batched=False` disables batching. A request that fails, is
    cancelled or is read slowly does not affect the others.

    `thread` runs the `scheduler`, which takes requests from the `queue`.
    """

    def __init__(
        self,
        llm: TextModel,
        *,
        running: int | None = None,
        waiting: int = WAITING_MAX,
        batched: bool | None = None,
    ) -> None:
        check_not_forked()
        running_max = llm.pool.sequences_max if running is None else integer("running", running)
        for name, value in (("running", running_max), ("waiting", integer("waiting", waiting))):
            if value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        self.llm = llm
        self.queue = RequestQueue(waiting)
        self.scheduler = Scheduler(llm, StepperChoice(llm, batched), running_max, self.queue)
        self._running_max = running_max
        self.thread = threading.Thread(target=self.scheduler.run, name="pteron engine", daemon=True)
        self.thread.start()

    def submit(self, request: Request) -> Answer:
        """Queue a request and return at once. Raises InputError if the model cannot run the request, and Busy
        if the queue is full."""
        check_not_forked()
        if not isinstance(request, Request):
            raise InputError(f"a request must be a Request, not {shortened(request)}")
        if request.resident is not None:
            raise InputError("resident is an option of generate and chat; an engine chooses for all requests")
        model, ids = self.llm.model, request.ids
        model.ids(request.text_ids)
        request.sampling.check_vocabulary(model.vocabulary)
        model.check_adapter(request.adapter)
        if model.context and len(ids) > model.context:
            raise InputError(f"the prompt has {len(ids)} tokens, the context holds {model.context}")
        job = Job(request, partial(self.scheduler.wake, is_cancelled=True))
        totals = self.scheduler.totals
        self.queue.put(job, lambda: totals.retry_seconds(len(self.queue), self._running_max))
        self.scheduler.wake()
        return Answer(job, self)

    @property
    def load(self) -> Load:
        """The current load, and totals since the start."""
        totals, pool, speculator = self.scheduler.totals, self.llm.pool, self.llm.speculator
        return Load(
            running=len(self.scheduler.running),
            waiting=len(self.queue) + len(self.scheduler.prefix_waits),
            sequences=pool.live,
            cache_bytes=pool.bytes,
            slots=self.slots,
            tokens_per_second=totals.rate(),
            requests=self.queue.accepted,
            prompt_tokens=totals.prompt_tokens,
            reused_tokens=totals.reused_tokens,
            new_tokens=totals.new_tokens,
            cancelled=totals.cancelled,
            failed=totals.failed,
            proposed_tokens=speculator.proposed if speculator else 0,
            accepted_tokens=speculator.accepted if speculator else 0,
        )

    @property
    def slots(self) -> int:
        """How many sequences can step as one batch, which reads the weights once for all of them. 0 if each
        sequence steps alone. It is 0 until two requests run at once: only then is the batch allocated."""
        return self.scheduler.stepping.slots

    @property
    def stepping(self) -> str:
        """How sequences step, and why, as a sentence."""
        return str(self.scheduler.stepping)

    def add_stepping_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with `stepping` once it is decided: now, or later in the engine's thread."""
        self.scheduler.stepping.add_listener(listener)

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread is running. It ends after `close` or an unexpected error."""
        return self.thread.is_alive() and not self.scheduler.is_stopping

    @property
    def is_full(self) -> bool:
        """Whether the queue is full: the next request would be rejected."""
        return len(self.queue) >= self.queue.most

    def drain(self, seconds: float | None = None) -> bool:
        """Reject new requests, and wait up to `seconds` until all requests have ended. Returns whether they
        have."""
        self.queue.refuse("the engine accepts no more requests: it is shutting down")
        return self.scheduler.idle.wait(lambda: not self.queue.open, seconds)

    def close(self) -> None:
        """Stop the engine at once. Incomplete answers fail with a DeviceError. The model stays open."""
        self.queue.refuse("the engine is closed")
        self.stop()
        if not in_child() and threading.current_thread() is not self.thread:
            self.thread.join()

    def stop(self) -> None:
        """Make the engine's thread end, without waiting for it."""
        self.scheduler.is_stopping = True
        self.scheduler.wake()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "scheduler") and not in_child():
            self.stop()  # a finalizer must not join the thread
