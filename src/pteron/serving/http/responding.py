"""Answers -> a response: streamed piece by piece, or whole. Either way the same shape takes the pieces, so
that what is streamed is what is told at once."""

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
from pteron.serving.http.record import Record
from pteron.serving.http.schema import StreamOptions
from pteron.serving.http.service import Service
from pteron.serving.http.sse import DONE, EventStream, Gone, event, until_gone

CLIENT_GONE = 499  # as nginx counts requests whose client left; nobody sees it but the log


class Shape(Protocol):
    """What becomes of pieces: chunks of a stream, and the whole answer."""

    prompts: int

    def opening(self) -> Iterator[dict[str, Any]]:
        """Chunks before the first piece."""

    def take(self, index: int, piece: Piece) -> Iterator[dict[str, Any]]:
        """The chunks that a piece of a choice makes."""

    def end(self, index: int, reason: str) -> Iterator[dict[str, Any]]:
        """The chunks that a choice's end makes."""

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """A chunk of what it took."""

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        """All of it, once every choice has ended."""

    def texts(self) -> list[str]:
        """What was said, for the log."""


async def respond(
    request: Request,
    service: Service,
    record: Record,
    answers: Answers,
    shape: Shape,
    is_streamed: bool,
    options: StreamOptions | None,
) -> Response:
    """The response to a request whose answers are under way."""

    def close() -> None:
        answers.cancel()
        answers.settle()
        if service.logs.with_prompts:
            record.answer = shape.texts()

    record.is_streamed = is_streamed
    if is_streamed:
        with_usage = bool(options and options.include_usage)
        events = _events(service, answers, shape, record, with_usage)
        return EventStream(events, close, record, service.limits.read_seconds)
    try:
        content = await until_gone(request.receive, _whole(answers, shape))
    except Gone:
        record.is_abandoned = True
        return Response(status_code=CLIENT_GONE)
    finally:
        close()
    return JSONResponse(content)


async def _chunks(answers: Answers, shape: Shape) -> AsyncGenerator[dict[str, Any], None]:
    for chunk in shape.opening():
        yield chunk
    async with aclosing(answers.events()) as events:
        async for index, found in events:
            chunks = shape.end(index, found) if isinstance(found, str) else shape.take(index, found)
            for chunk in chunks:
                yield chunk


async def _whole(answers: Answers, shape: Shape) -> dict[str, Any]:
    async with aclosing(_chunks(answers, shape)) as chunks:
        async for _ in chunks:
            pass
    return shape.whole(answers.usage(shape.prompts))


async def _events(
    service: Service, answers: Answers, shape: Shape, record: Record, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    extra = {"usage": None} if with_usage else {}
    try:
        async with aclosing(_chunks(answers, shape)) as chunks:
            async for chunk in chunks:
                yield event(chunk | extra)
    except Exception as error:  # the status has been sent: an event says what went wrong
        told = api_error(error)
        record.error = told.code
        if not isinstance(error, (ApiError, PteronError)):
            service.logs.failure(record, error)
        yield event(told.body)
    else:
        if with_usage:
            yield event(shape.usage(answers.usage(shape.prompts)))
    yield DONE
