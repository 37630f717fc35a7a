"""Engine: requests of many users, served by one model side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from reprlib import repr as shortened

from pteron.errors import InputError
from pteron.gpu.fork import check_not_forked, in_child
from pteron.llm.arguments import WAITING_MAX, integer
from pteron.llm.engine.answer import Answer
from pteron.llm.engine.job import Job
from pteron.llm.engine.load import Load
from pteron.llm.engine.queue import RequestQueue
from pteron.llm.engine.request import Request
from pteron.llm.engine.scheduler import Scheduler
from pteron.llm.engine.stepper_choice import StepperChoice
from pteron.llm.text_model import TextModel


class Engine:
    """A thread that owns a model and serves requests from any other.

        with Engine(llm) as engine:
            for piece in engine.submit(Request(ids)):
                print(piece.text, end="")

    Up to `running` answers (by default as many as the model has sequences) are made side by side, each the
    same as if it were alone; up to `waiting` more wait their turn, and what comes then is refused as Busy.
    Several step together where the program allows it and the device has room for their caches side by side
    (`slots`, `stepping`); with `batched=True` that is made sure of at once, with False it is not done.
    A request that fails, is cancelled or whose reader is slow harms no other.
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
        most = llm.pool.bound if running is None else integer("running", running)
        for name, value in (("running", most), ("waiting", integer("waiting", waiting))):
            if value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        self.llm = llm
        self._waiting = RequestQueue(waiting)
        self._loop = Scheduler(llm, StepperChoice(llm, batched), most, self._waiting)
        self._running = most
        self._thread = threading.Thread(target=self._loop.run, name="pteron engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Answer:
        """Have a request answered; returns at once. What the model cannot take is an InputError, and where
        too many wait it is Busy."""
        check_not_forked()
        if not isinstance(request, Request):
            raise InputError(f"a request must be a Request, not {shortened(request)}")
        model, ids = self.llm.model, request.ids
        model.ids(ids)
        model.ids(token for token, _ in request.sampling.biases)
        if model.context and len(ids) > model.context:
            raise InputError(f"the prompt has {len(ids)} tokens, the context holds {model.context}")
        job = Job(request, self._loop.cancelled)
        self._waiting.put(job, self._patience)
        self._loop.ring()
        return Answer(job, self)

    def _patience(self) -> float:
        return self._loop.totals.patience(len(self._waiting), self._running)

    @property
    def load(self) -> Load:
        """What there is to do, and what was done."""
        totals, pool = self._loop.totals, self.llm.pool
        return Load(
            running=len(self._loop.tracks),
            waiting=len(self._waiting) + len(self._loop.held),
            sequences=pool.live,
            cache_bytes=pool.bytes,
            slots=self._loop.stepping.slots,
            tokens_per_second=totals.rate(),
            requests=self._waiting.accepted,
            prompt_tokens=totals.prompt_tokens,
            reused_tokens=totals.reused_tokens,
            new_tokens=totals.new_tokens,
            cancelled=totals.cancelled,
            failed=totals.failed,
        )

    @property
    def slots(self) -> int:
        """How many sequences may step together, weights read once for all. 0 where each steps by itself, as
        all do before two requests are under way at once: memory for it is taken then."""
        return self._loop.stepping.slots

    @property
    def stepping(self) -> str:
        """How its sequences step, and why, in words."""
        return str(self._loop.stepping)

    def tell_stepping(self, listener: Callable[[str], None]) -> None:
        """Have somebody told these words once it is decided: now, or later in the engine's thread."""
        self._loop.stepping.tell(listener)

    @property
    def is_alive(self) -> bool:
        """Whether its thread is at work: not once it was closed, or has met what it was not made for."""
        return self._thread.is_alive() and not self._loop.is_stopping

    def drain(self, seconds: float | None = None) -> bool:
        """Take no more requests, and wait until all have ended, for `seconds` at most; whether they have."""
        self._waiting.refuse("the engine takes no more requests: it finishes those that it has")
        return self._loop.quiet.wait(lambda: not self._waiting.open, seconds)

    def close(self) -> None:
        """End now. Answers that are not complete fail with a DeviceError. The model stays open."""
        self._waiting.refuse("the engine is closed")
        self._stop()
        if not in_child() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _stop(self) -> None:
        self._loop.is_stopping = True
        self._loop.ring()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_loop") and not in_child():
            self._stop()  # waiting for the thread is not for a finalizer
