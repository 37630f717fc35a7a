"""What a request must be to reach a route: addressed to this server, with a key, not too large, in time."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from pteron.serving.http.body import CLOSE, Body
from pteron.serving.http.errors import ApiError, noted
from pteron.serving.http.keys import Keys
from pteron.serving.http.protocol import headers_too_large
from pteron.serving.http.service import Service

_ALWAYS_OPEN = ("/health",)
_BETWEEN = len(": \r\n")  # of a header


class Gate:
    """Refuses what may not come in, before anything of it is read.

    `hosts` are the names that the server answers to; none: to any. A server on this machine alone answers to
    this machine's names, so that no page on the internet reaches it by a name of its own.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        keys: Keys,
        hosts: Collection[str] = (),
        open_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._service = service
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
        body = Body(receive, self._service.limits)
        try:
            self._check_headers(scope)
            self._check(scope, headers)
            body.check_length(headers.get(b"content-length"))
            await self._app(scope, body.receive, send)
        except ApiError as error:
            await noted(scope, error)(scope, receive, send)

    def _check_headers(self, scope: Scope) -> None:
        """What a server notices while headers come in parts, of those that come at once; and that no one but
        this server could take another key for the one that counts."""
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        size += sum(len(name) + len(value) + _BETWEEN for name, value in scope["headers"])
        if size > self._service.limits.header_bytes:
            raise headers_too_large(self._service.limits.header_bytes)
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
            message = "there are two Authorization headers; a request has one key"
            raise ApiError(400, message, code="invalid_request", headers=CLOSE)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        host = _name(headers.get(b"host", b"").decode("latin-1"))
        if self._hosts and host not in self._hosts:
            raise ApiError(403, f"this server does not answer to the name {host!r}", code="unknown_host")
        if not self._is_open(path) and not self._keys.allow(headers.get(b"authorization")):
            message = "an API key is needed: Authorization: Bearer KEY"
            if b"authorization" in headers:
                message = "this is not an API key of this server"
            challenge = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=challenge)
        if self._service.is_draining and path not in _ALWAYS_OPEN:
            message = "the server is shutting down"
            raise ApiError(503, message, code="shutting_down", headers={"Retry-After": "5"})

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(
            path.startswith(opened) for opened in self._open_paths if opened.endswith("/") and opened != "/"
        )


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
