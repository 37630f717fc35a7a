"""Generation: the answers to a request -> a response, streamed or whole, in the format of an API.

Each answer is read by a task of its own, which sends its events. A whole response is what the writer makes of
the complete answers, which are what a stream's events add up to.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from pteron.llm.engine import Answer
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.answer.blocks import AnswerBlocks, Change
from pteron.serving.answer.parser import AnswerParser
from pteron.serving.answer.parts import Part
from pteron.serving.http.errors import ApiError
from pteron.serving.http.event_stream import SendEvent, respond
from pteron.serving.http.request_log import RECORD, RequestRecord
from pteron.serving.http.server_state import MODEL, LoadedModel
from pteron.serving.http.sse import encode_json

_REASONS = {"stop": "stop", "length": "length", "context": "length", "time": "length"}  # engine -> OpenAI


class Writer(Protocol):
    """The format of a response. Every method of a stream returns encoded events."""

    media_type: str

    def start(self) -> Iterator[bytes]:
        """The events before the first change; the prompt's tokens are counted."""

    def write(self, index: int, change: Change) -> Iterator[bytes]:
        """The events of the next change of an answer."""

    def end(self) -> Iterator[bytes]:
        """The events after the last change of all answers."""

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The events of an error in a running stream."""

    def body(self) -> dict[str, Any]:
        """The whole response, after the last change."""


class Generation:
    """The answers to a request. `requests` are for the engine: one per answer, and the same number for each
    prompt. By default all of an answer is text."""

    def __init__(
        self,
        request: Request,
        requests: Sequence[EngineRequest],
        parsers: Sequence[AnswerParser] = (),
        prompts: int = 1,
    ) -> None:
        self.model: LoadedModel = request.scope[MODEL]
        self.record: RequestRecord = request.scope[RECORD]
        self.answers = [AnswerBlocks() for _ in requests]
        self.prompt_tokens = sum(len(one.ids) for one in requests[:: len(requests) // prompts])
        self._request = request
        self._requests = list(requests)
        self._parsers = parsers or [AnswerParser() for _ in requests]
        self._choices = len(requests) // prompts  # of each prompt
        self._submitted: list[Answer] = []
        self._turn = asyncio.Lock()  # events of a piece stay together

    async def respond(self, writer: Writer, *, stream: bool) -> Response:
        self._writer, self.media_type = writer, writer.media_type
        self._submit()
        return await respond(self._request, self, stream=stream)

    @property
    def new_tokens(self) -> int:
        return self.record.new_tokens

    @property
    def reused_tokens(self) -> int:
        """Those of the prompts that were in the KV cache: each prompt counts once."""
        return sum(answer.statistics.reused_tokens for answer in self._submitted[:: self._choices])

    @property
    def reasoning_tokens(self) -> int:
        return sum(parser.reasoning_tokens for parser in self._parsers)

    def _submit(self) -> None:
        """Submit all requests, or none: if the engine rejects one, the earlier ones are cancelled."""
        record = self.record
        record.submitted, record.engine_requests = time.perf_counter(), self._requests
        try:
            for index, request in enumerate(self._requests):
                answer = self.model.text_engine.submit(request)
                self._submitted.append(answer)
                self.model.server.answers.add(answer)
                # The engine drops images once it has read them.
                self._requests[index] = replace(request, images=())
        except BaseException:
            self._cancel()
            raise
        record.answers, record.choices = self._submitted, len(self._submitted)

    def _cancel(self) -> None:
        for answer in self._submitted:
            answer.cancel()

    def close(self) -> None:
        self._cancel()
        del self._writer  # it refers to this: the cycle would keep the request's body
        if self.model.server.logs.with_prompts:
            self.record.answer = [answer.joined("text") for answer in self.answers]

    async def response(self) -> Response:
        await self._read_all(None)
        return Response(encode_json(self._writer.body()), media_type="application/json")

    async def write(self, send: SendEvent) -> None:
        for event in self._writer.start():
            await send(event)
        await self._read_all(send)
        for event in self._writer.end():
            await send(event)

    def fail(self, error: ApiError) -> Iterator[bytes]:
        return self._writer.fail(error)

    async def _read_all(self, send: SendEvent | None) -> None:
        """Read the answers to their ends; `send` gets the events of a stream."""
        reading = [asyncio.ensure_future(self._read(index, send)) for index in range(len(self.answers))]
        try:
            await asyncio.gather(*reading)
        finally:
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, index: int, send: SendEvent | None) -> None:
        answer, parser, metrics = self._submitted[index], self._parsers[index], self.model.server.metrics
        before: float | None = None
        async for piece in answer:
            now = time.perf_counter()
            if before is not None:
                metrics.next_token(now - before, self.model.names[0])
            elif self.record.first_token_seconds is None:
                self.record.first_token_seconds = now - self.record.arrived
                metrics.first_token(self.record.first_token_seconds, self.model.names[0])
            before = now
            await self._add(index, parser.add(piece), send)
        await self._add(index, parser.end(self._reason(answer), answer.statistics.stop_string), send)

    async def _add(self, index: int, parts: Iterable[Part], send: SendEvent | None) -> None:
        async with self._turn:
            for part in parts:
                for change in self.answers[index].add(part):
                    if send is not None:
                        for event in self._writer.write(index, change):
                            await send(event)

    def _reason(self, answer: Answer) -> str:
        reason = answer.finish_reason
        if reason == "time" and not answer.statistics.new_tokens:
            seconds = self.model.server.limits.seconds
            raise ApiError(503, f"the answer did not begin within {seconds:g} seconds", code="timeout")
        if reason == "cancelled":
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        if reason not in _REASONS:
            raise ApiError(500, "the model failed during this answer", code="model_error")
        return _REASONS[reason]


def new_id(prefix: str) -> str:
    """An id of a response, or of a part of one."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    return int(time.time())
