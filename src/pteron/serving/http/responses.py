"""ResponseBuilder: the answers to a request -> a response, streamed or in one part. Both are built from the
same pieces, so they agree."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

import pteron
from pteron.errors import PteronError
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answers import Answers
from pteron.serving.http.choices import Choice
from pteron.serving.http.errors import ApiError, api_error
from pteron.serving.http.request_log import CLIENT_CLOSED_REQUEST, RECORD, RequestRecord
from pteron.serving.http.schema import GenerationBody
from pteron.serving.http.service import Service
from pteron.serving.http.sse import (
    DONE,
    ClientDisconnected,
    EventStream,
    encode_event,
    run_until_disconnect,
)


class ResponseBuilder:
    """Submits the engine requests of a request, one per choice, and makes its response from their pieces.

    `kinds` are the prefix of the response's id, and OpenAI's names of a whole response and of a chunk.
    """

    def __init__(
        self,
        request: Request,
        requests: Sequence[EngineRequest],
        choices: Sequence[Choice],
        kinds: tuple[str, str, str],
        prompts: int = 1,
    ) -> None:
        prefix, self._kind, self._chunk_kind = kinds
        self._request = request
        self._service: Service = request.app.state.service
        self._record: RequestRecord = request.scope[RECORD]
        self._choices = choices
        self._prompts = prompts
        self._answers = Answers(self._service, self._record, requests)
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": self._record.model,
            "system_fingerprint": f"pteron-{pteron.__version__}",
        }

    async def respond(self, body: GenerationBody) -> Response:
        self._record.is_streamed = bool(body.stream)
        if body.stream:
            with_usage = bool(body.stream_options and body.stream_options.include_usage)
            seconds = self._service.limits.read_seconds
            return EventStream(self._events(with_usage), self._close, self._record, seconds)
        try:
            content = await run_until_disconnect(self._request.receive, self._body())
        except ClientDisconnected:
            self._record.is_abandoned = True
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        finally:
            self._close()
        return JSONResponse(content)

    def _close(self) -> None:
        self._answers.cancel()
        self._answers.update_record()
        if self._service.logs.with_prompts:
            self._record.answer = [choice.content for choice in self._choices]

    async def _body(self) -> dict[str, Any]:
        async with aclosing(self._chunks()) as chunks:
            async for _ in chunks:
                pass
        choices = [{"index": index, **choice.body()} for index, choice in enumerate(self._choices)]
        usage = self._answers.usage(self._prompts)
        return {**self._head, "object": self._kind, "choices": choices, "usage": usage}

    def _chunk(self, *choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**self._head, "object": self._chunk_kind, "choices": list(choices), **fields}

    async def _chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        for index, choice in enumerate(self._choices):
            for part in choice.opening():
                yield self._chunk({"index": index, "finish_reason": None, **part})
        async with aclosing(self._answers.events()) as events:
            async for index, found in events:
                choice = self._choices[index]
                for part in choice.end(found) if isinstance(found, str) else choice.add(found):
                    yield self._chunk({"index": index, "finish_reason": None, **part})

    async def _events(self, with_usage: bool) -> AsyncGenerator[bytes, None]:
        extra = {"usage": None} if with_usage else {}
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield encode_event(chunk | extra)
        except Exception as raised:  # the status is sent already, so the error is an event
            error = api_error(raised)
            self._record.error = error.code
            if not isinstance(raised, (ApiError, PteronError)):
                self._service.logs.failure(self._record, raised)
            yield encode_event(error.body)
        else:
            if with_usage:
                yield encode_event(self._chunk(usage=self._answers.usage(self._prompts)))
        yield DONE
