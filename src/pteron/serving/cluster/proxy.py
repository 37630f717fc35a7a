"""Proxy: reads each request, sends it to the replica that has its conversation in its cache, and passes the
answer on to the client as it comes.

In: ASGI, from Ray Serve's HTTP proxy. Out: calls of replicas; each runs what `pteron serve` runs on one
machine. Ray routes a request before its body is read, so Ray alone cannot distinguish conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from pteron.serving.cluster.routing import conversation_key
from pteron.serving.http.disconnect import ClientDisconnected, run_until_disconnect
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits
from pteron.serving.http.request_body import RequestBody
from pteron.serving.http.sse import encode_event

# The part of the ASGI scope that a replica needs and that can be sent to it.
_SCOPE = (
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "client", "server"),
)
_TRIES = 2  # a request is sent again only while the client has received nothing
_RETRY = {"Retry-After": "1"}
_GRACE = 30.0  # seconds beyond the request's time limit, in which replicas report a timeout themselves


class ProxyCall(Protocol):
    """A request that a replica is answering: an iterator over batches of ASGI messages."""

    def __aiter__(self) -> AsyncIterator[list[AsgiMessage]]: ...

    def cancel(self) -> None: ...


# Starts a call: (conversation key, scope, body) -> call.
CallReplica: TypeAlias = Callable[[str, Mapping[str, Any], bytes], ProxyCall]


class Proxy:
    """An ASGI application whose requests are answered by replicas. `map_error` turns an exception of a call
    into the error for the client, or into None if another replica may succeed."""

    def __init__(
        self,
        call_replica: CallReplica,
        limits: Limits,
        map_error: Callable[[BaseException], ApiError | None],
    ) -> None:
        self._call_replica = call_replica
        self._limits = limits
        self._map_error = map_error
        self._grace = _GRACE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        request = RequestBody(receive, self._limits, path)
        try:
            request.check_length(dict(scope["headers"]).get(b"content-length"))
            body = await request.read()
        except ApiError as error:
            if error.status == 413:
                await request.discard()
            await error.response()(scope, receive, send)
            return
        if body is None:
            return
        with suppress(ClientDisconnected):
            await run_until_disconnect(receive, self._answer(scope, body, send))

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        """Call a replica; call another if the first is lost before it has sent anything."""
        passed = {name: scope[name] for name in _SCOPE if name in scope}
        key = _session(scope) or conversation_key(scope["path"], body)
        response = _ClientResponse(send)
        error: ApiError | None = None
        try:
            async with asyncio.timeout(self._limits.seconds + self._grace):
                for _ in range(_TRIES):
                    try:
                        await response.pass_on(self._call_replica(key, passed, body))
                        if response.is_complete:
                            return
                        error = ApiError(502, "the answer ended before it was complete", code="incomplete")
                    except Exception as raised:
                        error = self._map_error(raised)
                        if error is not None:
                            break
                        text = "the replica that answered this request is lost; try again"
                        error = ApiError(503, text, code="replica_lost", headers=_RETRY)
                    if response.has_begun:
                        break
        except TimeoutError:
            error = ApiError(503, "no replica answered in time", code="timeout", headers=_RETRY)
        assert error is not None
        await response.fail(error, scope)


class _ClientResponse:
    """What the client has received so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_complete = False
        self._is_stream = False

    async def pass_on(self, call: ProxyCall) -> None:
        try:
            async for messages in call:
                for message in messages:
                    await self.send(message)
        finally:
            call.cancel()

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self._is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, error: ApiError, scope: Scope) -> None:
        """Send an error: as the response, or as an event of a stream; other responses are aborted."""
        if not self.has_begun:
            await error.response()(scope, _disconnected, self._send)
        elif self._is_stream:
            await self._send(
                {"type": "http.response.body", "body": encode_event(error.body), "more_body": False}
            )
        else:
            raise error


async def _disconnected() -> AsgiMessage:
    return {"type": "http.disconnect"}


def _session(scope: Scope) -> str:
    """The conversation key that the client sets itself, in a header that load balancers use too."""
    for name, value in scope["headers"]:
        if name.lower() == b"x-session-id":
            return f"session {value.decode('latin-1')}"
    return ""
