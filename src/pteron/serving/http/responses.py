"""Answers -> a response, streamed or in one part. Both are built from the same pieces, so they agree."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Protocol

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from pteron.errors import PteronError
from pteron.llm import Piece
from pteron.serving.http.answers import Answers
from pteron.serving.http.errors import ApiError, api_error
from pteron.serving.http.request_log import CLIENT_CLOSED_REQUEST, RequestRecord
from pteron.serving.http.schema import GenerationBody
from pteron.serving.http.service import Service
from pteron.serving.http.sse import (
    DONE,
    ClientDisconnected,
    EventStream,
    encode_event,
    run_until_disconnect,
)


class ResponseBuilder(Protocol):
    """Turns pieces into the chunks of a stream, and collects them for the complete body."""

    prompts: int

    def opening(self) -> Iterator[dict[str, Any]]:
        """Chunks before the first piece."""

    def add(self, index: int, piece: Piece) -> Iterator[dict[str, Any]]:
        """The chunks of a choice's next piece."""

    def end(self, index: int, reason: str) -> Iterator[dict[str, Any]]:
        """The chunks of a choice's end."""

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The chunk with the token counts."""

    def body(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The complete body, once every choice has ended."""

    def texts(self) -> list[str]:
        """The text of each choice, for the log."""


async def respond(
    request: Request,
    service: Service,
    record: RequestRecord,
    answers: Answers,
    builder: ResponseBuilder,
    body: GenerationBody,
) -> Response:
    """The response to a request whose answers have been submitted."""

    def close() -> None:
        answers.cancel()
        answers.update_record()
        if service.logs.with_prompts:
            record.answer = builder.texts()

    record.is_streamed = bool(body.stream)
    if body.stream:
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        events = _events(service, answers, builder, record, with_usage)
        return EventStream(events, close, record, service.limits.read_seconds)
    try:
        content = await run_until_disconnect(request.receive, _collect(answers, builder))
    except ClientDisconnected:
        record.is_abandoned = True
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        close()
    return JSONResponse(content)


async def _chunks(answers: Answers, builder: ResponseBuilder) -> AsyncGenerator[dict[str, Any], None]:
    for chunk in builder.opening():
        yield chunk
    async with aclosing(answers.events()) as events:
        async for index, found in events:
            chunks = builder.end(index, found) if isinstance(found, str) else builder.add(index, found)
            for chunk in chunks:
                yield chunk


async def _collect(answers: Answers, builder: ResponseBuilder) -> dict[str, Any]:
    async with aclosing(_chunks(answers, builder)) as chunks:
        async for _ in chunks:
            pass
    return builder.body(answers.usage(builder.prompts))


async def _events(
    service: Service, answers: Answers, builder: ResponseBuilder, record: RequestRecord, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    extra = {"usage": None} if with_usage else {}
    try:
        async with aclosing(_chunks(answers, builder)) as chunks:
            async for chunk in chunks:
                yield encode_event(chunk | extra)
    except Exception as raised:  # the status is sent already, so the error is an event
        error = api_error(raised)
        record.error = error.code
        if not isinstance(raised, (ApiError, PteronError)):
            service.logs.failure(record, raised)
        yield encode_event(error.body)
    else:
        if with_usage:
            yield encode_event(builder.usage_chunk(answers.usage(builder.prompts)))
    yield DONE
