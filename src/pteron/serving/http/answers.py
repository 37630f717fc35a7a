"""Answers: the choices of one request, merged into one stream of events.

In: one engine request per choice. Out: pairs of a choice's index and its next piece, or its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias

from pteron.llm import Piece
from pteron.llm.engine import Answer
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.errors import ApiError
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.service import Service

Ended: TypeAlias = tuple[str, str]  # OpenAI's finish reason; the stop string that was found, or nothing
Event: TypeAlias = tuple[int, Piece | Ended]  # of a choice, by its index

_REASONS = {"stop": "stop", "length": "length", "context": "length", "time": "length"}  # engine -> OpenAI


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a request: each prompt counts once, however many choices it has."""

    prompt: int
    reused: int  # of the prompt, found in the KV cache
    new: int
    seconds: float  # since the request arrived
    first_seconds: float  # of these, to the first token
    reasoning: int = 0  # of the new tokens


class Answers:
    """Submits all choices of a request, or none: if the engine rejects one, the earlier ones are
    cancelled."""

    def __init__(
        self, service: Service, record: RequestRecord, requests: list[EngineRequest], prompts: int
    ) -> None:
        self._service = service
        self._requests = requests
        self._choices = max(1, len(requests) // prompts)  # of each prompt
        self._record = record
        self._answers: list[Answer] = []
        record.submitted, record.engine_requests = time.perf_counter(), requests
        try:
            for index, request in enumerate(requests):
                answer = service.text_engine.submit(request)
                self._answers.append(answer)
                service.answers.add(answer)
                requests[index] = replace(request, images=())  # the engine drops them once it has read them
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
        self._record.statistics = [answer.statistics for answer in self._answers]
        # An answer that was just cancelled has no reason yet.
        self._record.finish_reasons = [answer.finish_reason or "cancelled" for answer in self._answers]

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        return Usage(
            sum(len(request.ids) for request in self._requests[:: self._choices]),
            self._sum("reused_tokens", self._choices),
            self._sum("new_tokens"),
            self._record.seconds,
            self._record.first_token_seconds or self._record.seconds,
        )

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
                running -= isinstance(found[1], tuple)
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
        model = self._service.names[0]
        before: float | None = None
        async for piece in answer:
            now = time.perf_counter()
            if before is not None:
                metrics.next_token(now - before, model)
            elif record.first_token_seconds is None:
                record.first_token_seconds = now - record.arrived
                metrics.first_token(record.first_token_seconds, model)
            before = now
            yield index, piece
        yield index, (self._finish_reason(answer), answer.statistics.stop_string)

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
