"""respond: work for a request -> its response, streamed or whole.

A client that disconnects at any time, or does not read what is sent, ends the work; `close` is always called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pteron.errors import PteronError
from pteron.serving.http.disconnect import ClientDisconnected, run_until_disconnect
from pteron.serving.http.errors import ApiError, api_error, release
from pteron.serving.http.request_log import RECORD, RequestRecord
from pteron.serving.http.server_state import MODEL

SendEvent: TypeAlias = Callable[[bytes], Awaitable[None]]
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the latter: nginx must not buffer


class Work(Protocol):
    """What a request asks for."""

    media_type: str  # of a stream

    async def response(self) -> Response:
        """The whole response."""

    async def write(self, send: SendEvent) -> None:
        """Send the events of a stream."""

    def fail(self, error: ApiError) -> Iterable[bytes]:
        """The events of an error in a running stream."""

    def close(self) -> None:
        """End the work."""


async def respond(request: Request, work: Work, *, stream: bool) -> Response:
    record: RequestRecord = request.scope[RECORD]
    record.is_streamed = stream
    if stream:
        return _EventStream(work)
    try:
        return await run_until_disconnect(request.receive, work.response())
    finally:
        work.close()


class _EventStream(Response):
    def __init__(self, work: Work) -> None:
        self._work = work
        self.media_type = work.media_type
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_until_disconnect(receive, self._write(scope, send))
        except ClientDisconnected as left:
            scope[RECORD].is_abandoned = True
            release(left)
        finally:
            self._work.close()

    async def _write(self, scope: Scope, send: Send) -> None:
        server, record = scope[MODEL].server, scope[RECORD]

        async def send_part(part: Message) -> None:
            try:
                async with asyncio.timeout(server.limits.read_seconds):
                    await send(part)
            except OSError:  # TimeoutError is one; some servers raise others once the client has left
                raise ClientDisconnected from None

        async def send_event(data: bytes) -> None:
            await send_part({"type": "http.response.body", "body": data, "more_body": True})

        await send_part(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        try:
            await self._work.write(send_event)
        except ClientDisconnected:
            raise
        except Exception as raised:  # the status is sent already, so the error is an event
            error = api_error(raised)
            record.error = error.code
            if not isinstance(raised, (ApiError, PteronError)):
                server.logs.failure(scope, raised)
            release(raised)
            for event in self._work.fail(error):
                await send_event(event)
        await send_part({"type": "http.response.body", "body": b"", "more_body": False})
