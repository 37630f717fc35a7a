"""The answer to a request: a stream of pieces, for readers in any thread and any event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from pteron.gpu.fork import in_child
from pteron.llm.engine.job import Job
from pteron.llm.output import Piece, Statistics


class Answer:
    """Pieces as they arrive. It may be read several times and by several at once: every reader gets all
    pieces from the first on. Where the request failed, its error is raised after the last of them.

    An answer that nobody holds any more is cancelled.
    """

    def __init__(self, job: Job, engine: object) -> None:
        self._job = job
        self._engine = engine  # which goes on as long as there is somebody to read

    @property
    def statistics(self) -> Statistics:
        """What it took so far."""
        return self._job.statistics

    @property
    def finish_reason(self) -> str:
        """Empty until the answer ends; then "stop", "length" or "context" as in `Statistics`, "cancelled",
        "time" where the request's seconds were over, or "error"."""
        return self._job.statistics.finish_reason if self._job.is_over else ""

    def cancel(self) -> None:
        """Want no more of it: its sequence is free within a step. Readers see the stream end."""
        self._job.cancel()

    def pieces(self) -> list[Piece]:
        """All of it, once it has ended."""
        return list(self)

    def text(self) -> str:
        """All of its text, once it has ended."""
        return "".join(piece.text for piece in self)

    def __iter__(self) -> Iterator[Piece]:
        job, count = self._job, 0
        while True:
            job.news.wait(partial(job.has, count))
            if count == len(job.pieces):
                break
            yield job.pieces[count]
            count += 1
        if job.error:
            raise job.error

    def __aiter__(self) -> AsyncIterator[Piece]:
        return _Reader(self)

    def __del__(self) -> None:
        if not in_child():
            self._job.cancel()


class _Reader:
    """An answer read by `async for`. Tasks that share one get different pieces; those who wait for one may be
    overtaken by one who comes as it does."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._job = answer._job
        self._count = 0

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Piece:
        job = self._job
        while not job.has(self._count):  # what it waited for may have gone to another task
            await job.news.wait_in_loop(partial(job.has, self._count))
        if self._count < len(job.pieces):
            self._count += 1
            return job.pieces[self._count - 1]
        raise job.error or StopAsyncIteration
