"""The answers to one request: pieces of each as they come, in the order in which they come.

In: what the engine takes, once for each choice. Out: pairs of a choice's number and its next piece, or the
reason why it ended. However that is left, the engine is told to end what still runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeAlias

from pteron.llm import Piece
from pteron.llm.engine import Answer
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.errors import ApiError
from pteron.serving.http.record import Record
from pteron.serving.http.service import Service

Event: TypeAlias = tuple[int, Piece | str]  # a choice's number, its piece or its end's reason

# What OpenAI calls the end of an answer.
_REASONS = {"stop": "stop", "length": "length", "context": "length", "time": "length"}


class Answers:
    """Submits all of a request's answers, or none: where one is refused, so are those before it."""

    def __init__(self, service: Service, record: Record, requests: Sequence[EngineRequest]) -> None:
        self._service = service
        self._record = record
        self._answers: list[Answer] = []
        try:
            for request in requests:
                answer = service.writer.submit(request)
                self._answers.append(answer)
                service.answers.add(answer)
        except BaseException:
            self.cancel()
            raise
        record.choices = len(requests)

    def cancel(self) -> None:
        """End what still runs; it is no harm where nothing does."""
        for answer in self._answers:
            answer.cancel()

    def settle(self) -> None:
        """Note what the answers took."""
        statistics = [answer.statistics for answer in self._answers]
        self._record.prompt_tokens = sum(taken.prompt_tokens for taken in statistics)
        self._record.reused_tokens = sum(taken.reused_tokens for taken in statistics)
        self._record.new_tokens = sum(taken.new_tokens for taken in statistics)
        # An answer that was cancelled a moment ago has not ended yet.
        self._record.finish_reasons = [answer.finish_reason or "cancelled" for answer in self._answers]

    def usage(self, prompts: int) -> dict[str, object]:
        """Tokens as OpenAI counts them: each prompt once, however many answers it gets."""
        each = max(1, len(self._answers) // prompts)
        statistics = [answer.statistics for answer in self._answers]
        prompt = sum(taken.prompt_tokens for taken in statistics[::each])
        reused = sum(taken.reused_tokens for taken in statistics[::each])
        new = sum(taken.new_tokens for taken in statistics)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
            "prompt_tokens_details": {"cached_tokens": reused},
        }

    async def events(self) -> AsyncGenerator[Event, None]:
        """Everything that the answers bring."""
        if len(self._answers) == 1:
            async with aclosing(self._of(0)) as events:
                async for event in events:
                    yield event
            return
        queue: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        pumps = [asyncio.create_task(self._pump(index, queue)) for index in range(len(self._answers))]
        try:
            left = len(pumps)
            while left:
                found = await queue.get()
                if isinstance(found, BaseException):
                    raise found
                left -= isinstance(found[1], str)
                yield found
        finally:
            for pump in pumps:
                pump.cancel()

    async def _pump(self, index: int, queue: asyncio.Queue[Event | BaseException]) -> None:
        try:
            async with aclosing(self._of(index)) as events:
                async for event in events:
                    queue.put_nowait(event)
        except Exception as error:
            queue.put_nowait(error)

    async def _of(self, index: int) -> AsyncGenerator[Event, None]:
        answer, record, metrics = self._answers[index], self._record, self._service.metrics
        before: float | None = None
        async for piece in answer:
            now = time.perf_counter()
            if before is not None:
                metrics.next_token(now - before)
            elif record.first_token_seconds is None:
                record.first_token_seconds = now - record.arrived
                metrics.first_token(record.first_token_seconds)
            before = now
            yield index, piece
        yield index, self._reason(answer)

    def _reason(self, answer: Answer) -> str:
        reason = answer.finish_reason
        if reason == "time" and not answer.statistics.new_tokens:
            seconds = self._service.limits.seconds
            raise ApiError(503, f"the answer did not begin within {seconds:g} seconds", code="timeout")
        if reason == "cancelled":
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        if reason not in _REASONS:
            raise ApiError(500, "the model could not go on with this answer", code="model_error")
        return _REASONS[reason]
