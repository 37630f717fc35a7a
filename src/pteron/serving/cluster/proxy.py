"""Where requests come in: each is read, goes to a replica that has its conversation's beginning in its cache,
and what that says goes back to the client as it comes.

In: ASGI, from Ray Serve's proxy. Out: calls of replicas, which are what `pteron serve` runs on one machine.
Ray routes a request before its body has been read, so it cannot tell conversations apart by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from starlette.types import Receive, Scope, Send

from pteron.serving.cluster.conversation import key_of
from pteron.serving.http.body import Body
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits
from pteron.serving.http.sse import Gone, event, until_gone

Message: TypeAlias = MutableMapping[str, Any]
# Of a request, what a replica's application looks at; the rest is the web server's own.
_SCOPE = (
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "client", "server"),
)
_TRIES = 2  # of a request that nothing was answered to yet: nobody can tell the second from the first
_AGAIN = {"Retry-After": "1"}
_GRACE = 30.0  # seconds beyond those that an answer may take: for replicas to say so themselves


class Call(Protocol):
    """A request on its way through a replica."""

    def __aiter__(self) -> AsyncIterator[list[Message]]: ...

    def cancel(self) -> None: ...


# What is called for a request: its conversation, its scope, its body.
Replicas: TypeAlias = Callable[[str, Mapping[str, Any], bytes], Call]


class Proxy:
    """An ASGI application that has others answer. `told` makes of what a call raises what the client is told,
    None where another replica may do better."""

    def __init__(
        self, replicas: Replicas, limits: Limits, told: Callable[[BaseException], ApiError | None]
    ) -> None:
        self._replicas = replicas
        self._limits = limits
        self._told = told
        self._grace = _GRACE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            request = Body(receive, self._limits)
            request.check_length(dict(scope["headers"]).get(b"content-length"))
            body = await request.read()
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        if body is None:
            return
        with suppress(Gone):
            await until_gone(receive, self._answer(scope, body, send))

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        """Have a replica answer, or the next where one is lost before it has said anything."""
        passed = {name: scope[name] for name in _SCOPE if name in scope}
        key = _session(scope) or key_of(scope["path"], body)
        said = _Said(send)
        error: ApiError | None = None
        try:
            async with asyncio.timeout(self._limits.seconds + self._grace):
                for _ in range(_TRIES):
                    try:
                        await said.pass_on(self._replicas(key, passed, body))
                        if said.is_whole:
                            return
                        error = ApiError(502, "the answer ended before it was complete", code="incomplete")
                    except Exception as raised:
                        error = self._told(raised)
                        if error is not None:
                            break
                        text = "the replica that was to answer is gone; try again"
                        error = ApiError(503, text, code="replica_lost", headers=_AGAIN)
                    if said.has_begun:
                        break
        except TimeoutError:
            error = ApiError(503, "no replica answered in time", code="timeout", headers=_AGAIN)
        assert error is not None
        await said.fail(error, scope)


class _Said:
    """What the client has been sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_whole = False
        self._is_stream = False

    async def pass_on(self, call: Call) -> None:
        """All that a replica says."""
        try:
            async for messages in call:
                for message in messages:
                    await self.send(message)
        finally:
            call.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self._is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif message["type"] == "http.response.body":
            self.is_whole = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, error: ApiError, scope: Scope) -> None:
        """Tell an error, in the midst of a stream too; an answer in one part is broken off."""
        if not self.has_begun:
            await error.response()(scope, _nothing, self._send)
        elif self._is_stream:
            await self._send({"type": "http.response.body", "body": event(error.body), "more_body": False})
        else:
            raise error


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _session(scope: Scope) -> str:
    """The conversation as its client names it: a header that balancers know."""
    for name, value in scope["headers"]:
        if name.lower() == b"x-session-id":
            return f"session {value.decode('latin-1')}"
    return ""
