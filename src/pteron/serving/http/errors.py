"""What goes wrong -> an answer in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

In: any exception of a request. Out: a status, headers and that body; a browser that opens an address which is
none of the API's gets a line of text. What is nobody's business, as the text of an error that was not
foreseen, stays in the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import Scope

from pteron.errors import DeviceLost, InputError, OutOfMemory, PteronError
from pteron.llm.engine import Busy
from pteron.serving.http.record import KEY, Record

_TYPES = {429: "rate_limit_error", 401: "authentication_error", 403: "permission_error"}


class ApiError(HTTPException):
    """An error that a client is told. It is of FastAPI's kind, which alone gets out of reading a body."""

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
        self.message = _whole(message)
        self.param = None if param is None else _whole(param)
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def api_error(error: BaseException) -> ApiError:
    """What a client is told of an exception."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Busy):
        seconds = str(max(1, math.ceil(error.seconds)))
        return ApiError(429, str(error), code="rate_limit_exceeded", headers={"Retry-After": seconds})
    if isinstance(error, InputError):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, DeviceLost):
        message = "the server has lost its device; try again once it was started anew"
        return ApiError(503, message, code="device_lost", headers={"Retry-After": "5"})
    if isinstance(error, OutOfMemory):
        return ApiError(503, "the device has no room for this now; try again later", code="out_of_memory")
    if isinstance(error, PteronError):
        return ApiError(500, f"the model could not go on: {error}", code="model_error")
    message = "the server met an error that it did not foresee; its log has more"
    return ApiError(500, message, code="internal_error")


def _whole(text: str) -> str:
    """Text that can be sent: half a character, which JSON may spell, is shown by its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def add_handlers(app: FastAPI) -> None:
    """Let an application answer every error in this shape."""

    @app.exception_handler(ApiError)
    @app.exception_handler(PteronError)
    async def told(request: Request, error: Exception) -> JSONResponse:
        return noted(request.scope, api_error(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return noted(request.scope, _invalid(error.errors()[0]))

    @app.exception_handler(AnyHTTPException)
    async def refused(request: Request, error: AnyHTTPException) -> Response:
        told = _refused(request, error)
        response = noted(request.scope, told)
        if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
            return response
        headers = {**(told.headers or {}), "X-Content-Type-Options": "nosniff"}
        return PlainTextResponse(f"{told.message[:1].upper()}{told.message[1:]}.\n", told.status, headers)


def noted(scope: Scope, error: ApiError) -> JSONResponse:
    """The response of an error, whose code the log gets: its message may hold what a user wrote."""
    record: Record = scope[KEY]
    record.error = error.code
    return error.response()


def _invalid(first: Mapping[str, Any]) -> ApiError:
    """The first thing that is wrong with a body."""
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    if first["type"] == "json_invalid":
        why = first.get("ctx", {}).get("error", "it cannot be read")
        return ApiError(400, f"the body is no JSON: {why}", code="invalid_json")
    if not place:
        message = "the body must be a JSON object, sent as application/json"
        return ApiError(400, message, code="invalid_json")
    param = place[0] if place[0] != "messages" else ".".join(place)
    if first["type"] == "extra_forbidden":
        message, code = f"there is no parameter {'.'.join(place)}", "unknown_parameter"
    elif first["type"] == "missing":
        message, code = f"{'.'.join(place)} is missing", "missing_required_parameter"
    else:
        said = str(first["msg"]).removeprefix("Value error, ")
        message, code = f"{'.'.join(place)}: {said}", "invalid_value"
    return ApiError(400, message, param=param, code=code)


def _refused(request: Request, error: AnyHTTPException) -> ApiError:
    headers = error.headers
    if error.status_code == 404:
        return ApiError(404, f"there is nothing at {request.url.path}", code="not_found", headers=headers)
    if error.status_code == 405:
        message = f"{request.url.path} does not take {request.method}"
        return ApiError(405, message, code="method_not_allowed", headers=headers)
    if error.status_code == 400 and isinstance(error.__cause__, (ValueError, RecursionError)):
        message = "the body is no JSON that can be read: not UTF-8, nested too deep, or a number too long"
        return ApiError(400, message, code="invalid_json", headers=headers)
    code = "internal_error" if error.status_code >= 500 else "invalid_request"
    return ApiError(error.status_code, str(error.detail), code=code, headers=headers)
