"""ASGI middleware: access control before a route runs, and the log line and metrics of every request."""

from __future__ import annotations

import uuid
from collections.abc import Collection, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from pteron.serving.http.api_keys import ApiKeys
from pteron.serving.http.errors import ApiError, api_error, recorded_response, release
from pteron.serving.http.request_body import RequestBody
from pteron.serving.http.request_log import CLIENT_CLOSED_REQUEST, RECORD, RequestRecord, route_of
from pteron.serving.http.server_state import USED, ServerState

_ALWAYS_OPEN = ("/health", "/ready")
_CURL_TYPE = b"application/x-www-form-urlencoded"
# Polled every few seconds, or files of the page; only failures are logged.
_NOT_LOGGED = (*_ALWAYS_OPEN, "/metrics", "/page/{name:path}")


class AccessMiddleware:
    """Rejects requests with a wrong host name, without a key or above a limit, before the body is read.

    A body of the type that curl sends, or of none, is taken as JSON, except from a browser, which names the
    page's origin: pages of other sites must ask (CORS), and they need not for other types than JSON.

    `hosts` are the accepted host names; empty: any. A server on 127.0.0.1 accepts only this machine's names,
    so that a web site cannot reach it by pointing its own name at 127.0.0.1 (DNS rebinding).
    """

    def __init__(
        self,
        app: ASGIApp,
        server: ServerState,
        keys: ApiKeys,
        hosts: Collection[str] = (),
        open_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._server = server
        self._keys = keys
        self._hosts = {host.lower() for host in hosts}
        self._open_paths = {*_ALWAYS_OPEN, *open_paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = RequestBody(receive, self._server.limits, _path(scope))
        try:
            self._check_access(scope, headers)
            body.check_length(headers.get(b"content-length"))
            if b"origin" not in headers and headers.get(b"content-type", _CURL_TYPE) == _CURL_TYPE:
                rest = [header for header in scope["headers"] if header[0] != b"content-type"]
                scope["headers"] = [*rest, (b"content-type", b"application/json")]
            with self._server.admission():
                await self._app(scope, body.receive, send)
        except ApiError as error:
            # A client that expects status 100 waits for it before it sends its body.
            if error.status == 413 and b"expect" not in headers:
                await body.discard()
            await recorded_response(scope, error)(scope, receive, send)

    def _check_access(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = _path(scope)
        host = _host_name(headers.get(b"host", b"").decode("latin-1"))
        if self._hosts and host not in self._hosts:
            raise ApiError(403, f"this server does not accept the host name {host!r}", code="unknown_host")
        given = headers.get(b"authorization")
        if given is None and b"x-api-key" in headers:  # Anthropic's clients
            given = b"Bearer " + headers[b"x-api-key"]
        if not self._is_open(path) and not self._keys.allow(given):
            message = "an API key is needed: Authorization: Bearer KEY"
            if given is not None:
                message = "the API key is not valid for this server"
            challenge = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=challenge)
        if self._server.is_draining and path not in _ALWAYS_OPEN:
            message = "the server is shutting down"
            raise ApiError(503, message, code="shutting_down", headers={"Retry-After": "5"})

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(
            path.startswith(opened) for opened in self._open_paths if opened.endswith("/") and opened != "/"
        )


class RequestLogMiddleware:
    """Gives each request an id and a record, which inner layers fill in, and answers unexpected errors."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(f"req_{uuid.uuid4().hex}", scope["method"], scope["path"])
        scope[RECORD] = record

        async def send_with_id(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                header = (b"x-request-id", record.id.encode())
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            self._server.logs.failure(scope, error)
            response = recorded_response(scope, api_error(error))
            release(error)
            if not record.status:
                await response(scope, receive, send_with_id)
        finally:
            self._finish(scope, record)

    def _finish(self, scope: Scope, record: RequestRecord) -> None:
        if USED in scope:
            scope[USED].release()
        if record.is_abandoned:
            record.status = CLIENT_CLOSED_REQUEST
        record.route = route_of(scope)
        self._server.metrics.request(record)
        if record.route not in _NOT_LOGGED or record.status >= 400:
            self._server.logs.request(record)
            if self._server.traces is not None:
                self._server.traces.request(record, dict(scope["headers"]))


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
