"""Server-sent events: JSON objects as they come, to a client that may leave at any time.

A client that leaves, or does not take what is sent to it, ends the stream at once: `close` is called whatever
happens, and tells the engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pteron.serving.http.record import Record

Result = TypeVar("Result")
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the latter: no proxy is to collect them
DONE = b"data: [DONE]\n\n"


class Gone(Exception):  # noqa: N818  # no error: it is what happens
    """The client has left."""


def event(content: dict[str, Any]) -> bytes:
    """An object as one event."""
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class EventStream(Response):
    """A response of events."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        close: Callable[[], None],
        record: Record,
        read_seconds: float,
    ) -> None:
        self._events = events
        self._close = close
        self._record = record
        self._read_seconds = read_seconds
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._write(send))
        except (Gone, TimeoutError):
            self._record.is_abandoned = True
        finally:
            self._close()

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._events) as events:
            async for data in events:
                part = {"type": "http.response.body", "body": data, "more_body": True}
                async with asyncio.timeout(self._read_seconds):
                    await send(part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """What work results in; Gone, and the work is cancelled, where the client leaves before its end."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _left(receive: Callable[[], Awaitable[Any]]) -> None:
    """Returns once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
