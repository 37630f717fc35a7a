"""Answers -> a response, streamed or in one part. Both are built from the same pieces, so they agree."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

import pteron
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


class Choice(Protocol):
    """One answer of a response. Its parts lack what all chunks share."""

    content: str

    def opening(self) -> Iterator[dict[str, Any]]:
        """The parts of a stream before the first piece."""

    def add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The parts of a stream for the next piece."""

    def end(self, reason: str) -> Iterator[dict[str, Any]]:
        """The last parts of a stream."""

    def body(self) -> dict[str, Any]:
        """The whole answer."""


class ResponseBuilder:
    """Makes the chunks of a stream and the complete body from the pieces of all choices."""

    def __init__(
        self, prefix: str, kind: str, chunk_kind: str, model: str, choices: Sequence[Choice]
    ) -> None:
        self._kind = kind
        self._chunk_kind = chunk_kind
        self.choices = choices
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"pteron-{pteron.__version__}",
        }

    def chunk(self, *choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**self._head, "object": self._chunk_kind, "choices": list(choices), **fields}

    def choice_chunk(self, index: int, part: dict[str, Any]) -> dict[str, Any]:
        return self.chunk({"index": index, "finish_reason": None, **part})

    def body(self, usage: dict[str, Any]) -> dict[str, Any]:
        choices = [{"index": index, **choice.body()} for index, choice in enumerate(self.choices)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": usage}


async def respond(
    request: Request,
    service: Service,
    record: RequestRecord,
    answers: Answers,
    builder: ResponseBuilder,
    body: GenerationBody,
    prompts: int = 1,
) -> Response:
    """The response to a request whose answers have been submitted."""

    def close() -> None:
        answers.cancel()
        answers.update_record()
        if service.logs.with_prompts:
            record.answer = [choice.content for choice in builder.choices]

    record.is_streamed = bool(body.stream)
    if body.stream:
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        usage = partial(answers.usage, prompts) if with_usage else None
        events = _events(service, answers, builder, record, usage)
        return EventStream(events, close, record, service.limits.read_seconds)
    try:
        content = await run_until_disconnect(request.receive, _collect(answers, builder, prompts))
    except ClientDisconnected:
        record.is_abandoned = True
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        close()
    return JSONResponse(content)


async def _chunks(answers: Answers, builder: ResponseBuilder) -> AsyncGenerator[dict[str, Any], None]:
    for index, choice in enumerate(builder.choices):
        for part in choice.opening():
            yield builder.choice_chunk(index, part)
    async with aclosing(answers.events()) as events:
        async for index, found in events:
            choice = builder.choices[index]
            for part in choice.end(found) if isinstance(found, str) else choice.add(found):
                yield builder.choice_chunk(index, part)


async def _collect(answers: Answers, builder: ResponseBuilder, prompts: int) -> dict[str, Any]:
    async with aclosing(_chunks(answers, builder)) as chunks:
        async for _ in chunks:
            pass
    return builder.body(answers.usage(prompts))


async def _events(
    service: Service,
    answers: Answers,
    builder: ResponseBuilder,
    record: RequestRecord,
    usage: Callable[[], dict[str, object]] | None,
) -> AsyncGenerator[bytes, None]:
    extra = {"usage": None} if usage else {}
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
        if usage:
            yield encode_event(builder.chunk(usage=usage()))
    yield DONE
