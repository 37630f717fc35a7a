"""The outermost layer of an application: a number for each request, its log line, its place in the metrics,
and an answer to errors that nobody foresaw."""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from pteron.serving.http.errors import api_error, noted
from pteron.serving.http.record import KEY, Record
from pteron.serving.http.responding import CLIENT_GONE
from pteron.serving.http.service import Service

_QUIET = ("/health", "/metrics")  # asked for every few seconds, by machines


class Watch:
    """Layers below find the request's record in its scope."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record(f"req_{uuid.uuid4().hex}", scope["method"])
        scope[KEY] = record

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                number = (b"x-request-id", record.id.encode())
                message = {**message, "headers": [*message.get("headers", ()), number]}
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            self._service.logs.failure(record, error)
            response = noted(scope, api_error(error))
            if not record.status:
                await response(scope, receive, sending)
        finally:
            self._end(scope, record)

    def _end(self, scope: Scope, record: Record) -> None:
        if record.is_abandoned:
            record.status = CLIENT_GONE
        record.route = getattr(scope.get("route"), "path", record.route)
        self._service.metrics.request(record)
        if record.route not in _QUIET or record.status >= 400:
            self._service.logs.request(record)
