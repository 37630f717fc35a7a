"""Exceptions -> responses in OpenAI's format, {"error": {"message", "type", "param", "code"}}, or in that of
the API that a path belongs to.

A browser that opens an address outside the API gets a line of text instead. The message of an unexpected
exception stays in the log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import Scope

from pteron.errors import DeviceLost, InputError, OutOfMemory, PteronError
from pteron.llm.engine import Busy
from pteron.serving.api.schema import LOOKUPS_MAX, MISSPELT
from pteron.serving.http.disconnect import ClientDisconnected
from pteron.serving.http.request_log import CLIENT_CLOSED_REQUEST, RECORD, RequestRecord

Given = TypeVar("Given", bound=BaseModel)
_UNION = re.compile(
    r"str|int|float|bool|(list|dict|literal)\[.*|(function|constrained)-.*|[A-Z].*", re.DOTALL
)
_TYPES = {429: "rate_limit_error", 401: "authentication_error", 403: "permission_error"}
NO_THREADS = "thread_unsupported_request"
_ANTHROPIC_TYPES = _TYPES | {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}


class ApiError(HTTPException):
    """An error for the client. It derives from FastAPI's exception: FastAPI replaces others that are raised
    while it reads a body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.status = status
        self.message = _encodable(message)
        self.param = None if param is None else _encodable(param)
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """An error in the format of /v1/messages."""
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    # By this code Anthropic's client recognises that it must send whole conversations.
    details = {"details": {"error_code": NO_THREADS}} if error.code == NO_THREADS else {}
    return {"type": "error", "error": {"type": kind, "message": error.message, **details}}


def ollama_body(error: ApiError) -> dict[str, Any]:
    """An error in the format of ollama."""
    return {"error": error.message}


_FORMATS = {"/v1/messages": anthropic_body, "/api/": ollama_body}  # by the beginning of a path


def invalid_value(message: str, param: str, *, code: str = "invalid_value") -> ApiError:
    """The error for a parameter that the server does not accept."""
    return ApiError(400, message, param=param, code=code)


def api_error(error: BaseException) -> ApiError:
    """The error for the client when an exception ends a request."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Busy):
        seconds = str(max(1, math.ceil(error.seconds)))
        return ApiError(429, str(error), code="rate_limit_exceeded", headers={"Retry-After": seconds})
    if isinstance(error, InputError):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, DeviceLost):
        message = "the server has lost its GPU; try again after it has restarted"
        return ApiError(503, message, code="device_lost", headers={"Retry-After": "5"})
    if isinstance(error, OutOfMemory):
        return ApiError(503, "the GPU is out of memory; try again later", code="out_of_memory")
    if isinstance(error, PteronError):
        return ApiError(500, f"the model failed: {error}", code="model_error")
    return ApiError(500, "unexpected error in the server; its log has details", code="internal_error")


def _encodable(text: str) -> str:
    """Text with lone surrogates, which JSON may contain and UTF-8 may not, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def add_error_handlers(app: FastAPI) -> None:
    for kind in (ApiError, PteronError, ClientDisconnected, RequestValidationError, AnyHTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    try:
        return _error_response(request, error)
    finally:
        release(error)


def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnected):
        request.scope[RECORD].is_abandoned = True
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if isinstance(error, RequestValidationError):
        # The place of an error begins with "body", "query" or "path".
        errors = [{**each, "loc": each["loc"][1:]} for each in error.errors()]
        return recorded_response(request.scope, validation_error(errors))
    if isinstance(error, (ApiError, PteronError)):
        return recorded_response(request.scope, api_error(error))
    assert isinstance(error, AnyHTTPException)
    found = _http_error(request, error)
    response = recorded_response(request.scope, found)
    if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return response
    headers = {**(found.headers or {}), "X-Content-Type-Options": "nosniff"}
    return PlainTextResponse(f"{found.message[:1].upper()}{found.message[1:]}.\n", found.status, headers)


def release(error: BaseException | None) -> None:
    """Drop the tracebacks of an error and of those it comes from. A frame that has a future, and so the
    exception that it raised, is a cycle: it would keep the request's body until a full garbage collection,
    which is rare."""
    left, visited = [error], set[int]()
    while left:
        each = left.pop()
        if each is not None and id(each) not in visited:
            visited.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]


def recorded_response(scope: Scope, error: ApiError) -> JSONResponse:
    """The response of an error, whose code is recorded for the log."""
    record: RequestRecord = scope[RECORD]
    record.error = error.code
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    for beginning, to_body in _FORMATS.items():
        if path.startswith(beginning):
            return JSONResponse(to_body(error), error.status, error.headers)
    return error.response()


def validated(kind: type[Given], fields: object) -> Given:
    """The body of a class whose fields come from a request."""
    try:
        return kind.model_validate(fields, context=iter(range(LOOKUPS_MAX)))
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False, include_input=False)) from None


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The error for the first problem that pydantic found in a body. A field of several types has one for
    each type; the one that says more than the names of types is reported."""
    first = next(
        (each for each in errors if not each["type"].endswith(("_type", "literal_error"))), errors[0]
    )
    place = _place(first)
    if first["type"] == MISSPELT:
        name = ".".join([*place, first["ctx"]["name"]])
        return invalid_value(str(first["msg"]), name, code="unknown_parameter")
    if not place:
        return ApiError(400, "the body must be a JSON object, sent as application/json", code="invalid_json")
    param = place[0] if place[0] != "messages" else ".".join(place)
    name = ".".join(place)
    if first["type"] == "missing":
        return invalid_value(f"{name} is missing", param, code="missing_required_parameter")
    return invalid_value(f"{name}: {first['msg']}", param)


def _place(error: Mapping[str, Any]) -> list[str]:
    """Names and numbers of fields, without the types among which pydantic has tried to find one."""
    place = [str(part) for part in error["loc"]]
    is_name = error["type"] == "missing"
    inner, last = (place[1:-1], place[-1:]) if is_name and len(place) > 1 else (place[1:], [])
    return place[:1] + [part for part in inner if not _UNION.fullmatch(part)] + last


def _http_error(request: Request, error: AnyHTTPException) -> ApiError:
    code = "internal_error" if error.status_code >= 500 else "invalid_request"
    message = str(error.detail)
    if error.status_code == 404:
        message, code = f"there is nothing at {request.url.path}", "not_found"
    elif error.status_code == 405:
        message, code = f"{request.url.path} does not accept {request.method}", "method_not_allowed"
    return ApiError(error.status_code, message, code=code, headers=error.headers)
