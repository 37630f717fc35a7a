"""The answer to a request: a stream of pieces, read in any thread or event loop.

The scheduler and the readers of a request share a `Job`, whose `Notifier` wakes them. `Engine.submit` returns
an `Answer`. A `Stream` reads an answer in an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from traceback import format_tb
from typing import Self

from pteron.errors import PteronError
from pteron.gpu.fork import check_not_forked, in_child, new_lock
from pteron.llm.output import Piece, Statistics
from pteron.llm.request import Request


class Notifier:
    """`notify` is called after a condition became true: waiters check theirs under the lock, so no wake-up is
    lost."""

    def __init__(self) -> None:
        self._changed = threading.Condition(new_lock())
        self._tasks: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Wake all current waiters."""
        with self._changed:
            self._changed.notify_all()
            tasks, self._tasks = self._tasks, []
        for task in tasks:
            with suppress(RuntimeError):  # its loop is closed: nothing waits in it
                task.get_loop().call_soon_threadsafe(_set_done, task)

    def wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Block this thread until the condition holds, for `seconds` at most; returns whether it holds."""
        if not condition():
            check_not_forked()
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    async def wait_async(self, condition: Callable[[], bool]) -> None:
        """Wait in an event loop until the condition holds."""
        while not condition():
            check_not_forked()
            task = asyncio.get_running_loop().create_future()
            with self._changed:
                if condition():
                    return
                self._tasks.append(task)
            await task


def _set_done(task: asyncio.Future[None]) -> None:
    if not task.done():
        task.set_result(None)


class Job:
    """A submitted request. The scheduler adds pieces and ends it once; any thread may cancel it and read it.

    It holds no reference to its Answer: an Answer without readers is collected, and cancels the job.
    """

    def __init__(self, request: Request, on_cancel: Callable[[], None] = lambda: None) -> None:
        self.request = request
        self.number = 0  # counts the requests of an engine
        self.submitted = monotonic()
        self.deadline = inf if request.seconds is None else self.submitted + request.seconds
        self.started = 0.0  # when it got a sequence
        self.statistics = Statistics(len(request.ids), dropped_tokens=request.dropped_tokens)
        self.pieces: list[Piece] = []
        self.error: BaseException | None = None
        self.notifier = Notifier()
        self.is_cancelled = False
        self.is_over = False
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """End the job at the scheduler's next turn. Safe in a finalizer: takes no lock."""
        if not (self.is_over or self.is_cancelled):
            self.is_cancelled = True
            self._on_cancel()

    def add(self, pieces: Iterable[Piece]) -> None:
        """Hand over new pieces, with one notification for all of them."""
        self.pieces.extend(pieces)
        self.notifier.notify()

    def end(self, reason: str, error: BaseException | None = None) -> None:
        # The traceback would keep models and GPU memory alive: an unforeseen error has it as text, for logs.
        if error and error.__traceback__ and not isinstance(error, PteronError):
            error.add_note("".join(["In the engine:\n", *format_tb(error.__traceback__)]).rstrip())
        self.error = error.with_traceback(None) if error else None
        self.statistics.finish_reason = reason
        self.is_over = True
        self.notifier.notify()

    def reason_to_end(self, now: float) -> str | None:
        """ "cancelled", "time" past the deadline, else None."""
        if self.is_cancelled:
            return "cancelled"
        return "time" if now >= self.deadline else None

    def has_more(self, count: int) -> bool:
        """Whether there are more than `count` pieces, or the job is over."""
        return len(self.pieces) > count or self.is_over


class Answer:
    """The pieces of a request as they arrive. Any number of readers may iterate over it: each gets all pieces
    from the first on. If the request failed, its error is raised after the last piece.

    An answer that is no longer referenced is cancelled.
    """

    def __init__(self, job: Job, engine: object) -> None:
        self._job = job
        self._engine = engine  # keeps the engine running while the answer is read

    @property
    def statistics(self) -> Statistics:
        return self._job.statistics

    @property
    def finish_reason(self) -> str:
        """Empty until the answer ends; then "stop", "length" or "context" as in `Statistics`, "cancelled",
        "time" if `Request.seconds` ran out, or "error"."""
        return self._job.statistics.finish_reason if self._job.is_over else ""

    def cancel(self) -> None:
        """Stop the request: its sequence is free within a step. Readers see the stream end."""
        self._job.cancel()

    def pieces(self) -> list[Piece]:
        """All pieces, once the answer has ended."""
        return list(self)

    def text(self) -> str:
        """The whole text, once the answer has ended."""
        return "".join(piece.text for piece in self)

    def __iter__(self) -> Iterator[Piece]:
        job, count = self._job, 0
        while True:
            job.notifier.wait(partial(job.has_more, count))
            if count == len(job.pieces):
                break
            yield job.pieces[count]
            count += 1
        if job.error:
            raise job.error

    def __aiter__(self) -> AsyncIterator[Piece]:
        return Stream(self)

    def __del__(self) -> None:
        if not in_child():
            self._job.cancel()


class Stream:
    """The pieces of an answer, for `async for`; `statistics` has its counts and times so far. Tasks that
    share a stream get different pieces.

    The request ends when the text is complete, by `aclose`, or when stream and answer are no longer
    referenced, for example after a `break`.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._job = answer._job
        self._count = 0  # pieces read

    @property
    def statistics(self) -> Statistics:
        return self._job.statistics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        job = self._job
        while not job.has_more(self._count):  # another task may have taken the piece
            await job.notifier.wait_async(partial(job.has_more, self._count))
        if self._count < len(job.pieces):
            self._count += 1
            return job.pieces[self._count - 1]
        raise job.error or StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the request, and wait until its sequence is free."""
        self._answer.cancel()
        with suppress(Exception):  # errors of a cancelled request
            async for _ in self:
                pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
