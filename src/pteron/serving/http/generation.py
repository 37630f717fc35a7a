"""Generation: the answers to a request -> a response, streamed or in one part, in the format of an API.

A Writer is an API's format. It takes the parts of all answers and returns the events of a stream; at the end
it has the whole response. Both are made from the same parts, so they agree.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from pteron.errors import PteronError
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answer_parser import AnswerParser
from pteron.serving.http.answers import Answers, Usage
from pteron.serving.http.errors import ApiError, api_error, release
from pteron.serving.http.parts import Part, Text
from pteron.serving.http.request_log import RECORD, RequestRecord
from pteron.serving.http.service import SERVICE, Service
from pteron.serving.http.sse import EventStream, encode_json, run_until_disconnect


class Writer(Protocol):
    """The format of a response. Every method of a stream returns encoded events."""

    media_type: str

    def start(self, usage: Usage) -> Iterator[bytes]:
        """The events before the first part; the prompt's tokens are counted."""

    def write(self, index: int, part: Part) -> Iterator[bytes]:
        """The events of the next part of a choice."""

    def end(self, usage: Usage) -> Iterator[bytes]:
        """The events after the last part of all choices."""

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The events of an error in a running stream."""

    def body(self, usage: Usage) -> dict[str, Any]:
        """The whole response, after the last part."""


class Generation:
    """Submits the engine requests of a request, one per choice, and makes its response from their pieces."""

    def __init__(
        self,
        request: Request,
        requests: list[EngineRequest],
        parsers: Sequence[AnswerParser],
        writer: Writer,
        prompts: int = 1,
    ) -> None:
        self._request = request
        self._service: Service = request.scope[SERVICE]
        self._record: RequestRecord = request.scope[RECORD]
        self._parsers = parsers
        self._writer = writer
        self._texts = [""] * len(parsers)
        self._answers = Answers(self._service, self._record, requests, prompts)

    async def respond(self, *, stream: bool) -> Response:
        self._record.is_streamed = stream
        if stream:
            seconds = self._service.limits.read_seconds
            return EventStream(self._events(), self._close, self._record, seconds, self._writer.media_type)
        try:
            body = await run_until_disconnect(self._request.receive, self._body())
            return Response(encode_json(body), media_type="application/json")
        finally:
            self._close()

    def _close(self) -> None:
        self._answers.cancel()
        self._answers.update_record()
        if self._service.logs.with_prompts:
            self._record.answer = self._texts

    async def _body(self) -> dict[str, Any]:
        async with aclosing(self._parts()) as parts:
            async for _ in parts:
                pass
        return self._writer.body(self._usage)

    @property
    def _usage(self) -> Usage:
        reasoning = sum(parser.reasoning_tokens for parser in self._parsers)
        return replace(self._answers.usage, reasoning=reasoning)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        for event in self._writer.start(self._answers.usage):
            yield event
        async with aclosing(self._answers.events()) as events:
            async for index, found in events:
                parser = self._parsers[index]
                for part in parser.end(*found) if isinstance(found, tuple) else parser.add(found):
                    if isinstance(part, Text):
                        self._texts[index] += part.text
                    for event in self._writer.write(index, part):
                        yield event
        for event in self._writer.end(self._usage):
            yield event

    async def _events(self) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._parts()) as parts:
                async for event in parts:
                    yield event
        except Exception as raised:  # the status is sent already, so the error is an event
            error = api_error(raised)
            self._record.error = error.code
            if not isinstance(raised, (ApiError, PteronError)):
                self._service.logs.failure(self._record, raised)
            release(raised)
            for event in self._writer.fail(error):
                yield event


def new_id(prefix: str) -> str:
    """An id of a response, or of a part of one."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    return int(time.time())
