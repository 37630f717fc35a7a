"""Server-sent events: a response of JSON objects, to a client that may disconnect at any time.

A client that disconnects, or does not read what is sent, ends the stream; `close` is always called.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pteron.serving.http.request_log import RequestRecord

Result = TypeVar("Result")
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the latter: nginx must not buffer
DONE = b"data: [DONE]\n\n"


class ClientDisconnected(Exception):  # noqa: N818  # not an error
    """The client has closed its connection."""


def encode_event(content: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event; some APIs name events."""
    return (f"event: {name}\n" if name else "").encode() + b"data: " + encode_json(content) + b"\n\n"


def encode_json(content: dict[str, Any]) -> bytes:
    """JSON in UTF-8. A model may write half of a surrogate pair, which becomes a question mark."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class EventStream(Response):
    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        close: Callable[[], None],
        record: RequestRecord,
        read_seconds: float,
        media_type: str = "text/event-stream",
    ) -> None:
        self.media_type = media_type
        self._events = events
        self._close = close
        self._record = record
        self._read_seconds = read_seconds
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_until_disconnect(receive, self._write(send))
        except (ClientDisconnected, TimeoutError):
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


_has_left: ContextVar[threading.Event | None] = ContextVar("has_left", default=None)


def check_client() -> None:
    """In a thread of `run_in_thread`: raise ClientDisconnected if the client of the request has left."""
    event = _has_left.get()
    if event is not None and event.is_set():
        raise ClientDisconnected


async def run_in_thread(
    receive: Receive,
    work: Callable[..., Result],
    *arguments: object,
    limiter: CapacityLimiter | None = None,
) -> Result:
    """The result of `work`, which runs in a thread and calls `check_client` between its parts. A thread
    cannot be stopped from outside, so the request lasts until it ends."""
    event = threading.Event()
    _has_left.set(event)  # the thread has a copy of this context

    async def watch() -> None:
        await _wait_for_disconnect(receive)
        event.set()

    watching = asyncio.ensure_future(watch())
    try:
        return await to_thread.run_sync(work, *arguments, limiter=limiter)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def run_until_disconnect(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`. If the client disconnects first, `work` is cancelled and ClientDisconnected is
    raised."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
