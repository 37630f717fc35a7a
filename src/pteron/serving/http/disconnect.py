"""Clients that disconnect: what runs for them ends, on the event loop and in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.types import Receive

Result = TypeVar("Result")


class ClientDisconnected(Exception):  # noqa: N818  # not an error
    """The client has closed its connection, or does not read what is sent."""


_has_left: ContextVar[threading.Event | None] = ContextVar("has_left", default=None)


def check_client() -> None:
    """In `run_in_thread`: raise ClientDisconnected if the client of the request has left."""
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
        result = await to_thread.run_sync(work, *arguments, limiter=limiter)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    check_client()
    return result


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
