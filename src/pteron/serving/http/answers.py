"""Answers: the choices of one request, merged into one stream of events.

In: one engine request per choice. Out: pairs of a choice's index and its next piece, or its finish reason.
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
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.service import Service

Event: TypeAlias = tuple[int, Piece | str]  # a choice's index; its next piece, or OpenAI's finish reason

_REASONS = {"stop": "stop", "length": "length", "context": "length", "time": "length"}  # engine -> OpenAI


class Answers:
    """Submits all choices of a request, or none: if the engine rejects one, the earlier ones are
    cancelled."""

    def __init__(self, service: Service, record: RequestRecord, requests: Sequence[EngineRequest]) -> None:
        self._service = service
        self._record = record
        self._answers: list[Answer] = []
        try:
            for request in requests:
                answer = service.text_engine.submit(request)
                self._answers.append(answer)
                service.answers.add(answer)
        except BaseException:
            self.cancel()
            raise
        record.choices = len(requests)

    def cancel(self) -> None:
        for answer in self._answers:
            answer.cancel()

    def update_record(self) -> None:
        """Copy the answers' token counts and finish reasons to the request's record."""
        for name in ("prompt_tokens", "reused_tokens", "new_tokens"):
            setattr(self._record, name, self._sum(name))
        # An answer that was just cancelled has no reason yet.
        self._record.finish_reasons = [answer.finish_reason or "cancelled" for answer in self._answers]

    def usage(self, prompts: int) -> dict[str, object]:
        """OpenAI's token counts: each prompt counts once, however many choices it has."""
        choices = max(1, len(self._answers) // prompts)
        prompt, new = self._sum("prompt_tokens", choices), self._sum("new_tokens")
        return {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
            "prompt_tokens_details": {"cached_tokens": self._sum("reused_tokens", choices)},
        }

    def _sum(self, name: str, every: int = 1) -> int:
        return sum(getattr(answer.statistics, name) for answer in self._answers[::every])

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of all choices, in the order in which they come."""
        if len(self._answers) == 1:
            async with aclosing(self._choice_events(0)) as events:
                async for event in events:
                    yield event
            return
        queue: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        pumps = [asyncio.create_task(self._pump(index, queue)) for index in range(len(self._answers))]
        try:
            running = len(pumps)
            while running:
                found = await queue.get()
                if isinstance(found, BaseException):
                    raise found
                running -= isinstance(found[1], str)
                yield found
        finally:
            for pump in pumps:
                pump.cancel()

    async def _pump(self, index: int, queue: asyncio.Queue[Event | BaseException]) -> None:
        try:
            async with aclosing(self._choice_events(index)) as events:
                async for event in events:
                    queue.put_nowait(event)
        except Exception as error:
            queue.put_nowait(error)

    async def _choice_events(self, index: int) -> AsyncGenerator[Event, None]:
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
        yield index, self._finish_reason(answer)

    def _finish_reason(self, answer: Answer) -> str:
        reason = answer.finish_reason
        if reason == "time" and not answer.statistics.new_tokens:
            seconds = self._service.limits.seconds
            raise ApiError(503, f"the answer did not begin within {seconds:g} seconds", code="timeout")
        if reason == "cancelled":
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        if reason not in _REASONS:
            raise ApiError(500, "the model failed during this answer", code="model_error")
        return _REASONS[reason]
