"""JsonRoute: routes whose bodies are strict JSON in UTF-8, of limited structure, and fit the route's class.

Bodies are read on the event loop, where other requests wait. So what a body consists of is counted before it
is parsed, whatever its fields mean.

Python's parser also accepts NaN, infinite numbers and halves of surrogate pairs. A response that repeats a
field of its request could not be written with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any, NoReturn, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from pteron.serving.http.errors import ApiError, validated

PARTS_MAX = 100_000  # lists, objects and names of fields; 10,000 messages with parts and calls have fewer
VALUES_MAX = 1_500_000  # items of lists, and fields; the ids of a prompt of a million tokens are fewer
DEPTH_MAX = 100  # of lists and objects in each other; JSON schemas have some 20
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class JsonRoute(APIRoute):
    """A route whose `body` is parsed and checked here: FastAPI takes what is of its class already."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        kind: type[BaseModel] | None = get_type_hints(self.endpoint).get("body")

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request, kind))

        return handle_json


class _JsonRequest(Request):
    def __init__(self, request: Request, kind: type[BaseModel] | None) -> None:
        super().__init__(request.scope, request.receive)
        self._kind = kind

    async def json(self) -> Any:
        found = parse_json(await self.body())
        return found if self._kind is None else validated(self._kind, found)


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. ApiError: it has too many parts, a number that is not finite, or half of a
    surrogate pair."""
    _check_structure(data)
    try:
        found = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_number, parse_float=_finite)
        if b"\\u" in data:
            to_json(found)
    except json.JSONDecodeError as error:
        raise _invalid(f"the body is not JSON: {error.msg}") from None
    except PydanticSerializationError:
        raise _invalid("the body is not JSON: it has half of a surrogate pair") from None
    except (ValueError, RecursionError):
        message = "the body is not valid JSON: not UTF-8, nested too deeply, or a number is too long"
        raise _invalid(message) from None
    return found


def _check_structure(data: bytes) -> None:
    """Raise for a JSON text with too many parts, or too many in each other."""
    if sum(map(data.count, (b"[", b"{", b":"))) <= DEPTH_MAX and data.count(b",") < VALUES_MAX:
        return
    outside = b"".join(data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])  # of strings
    if sum(map(outside.count, (b"[", b"{", b":"))) > PARTS_MAX:
        raise _invalid(f"the body has more than {PARTS_MAX} lists, objects and fields")
    if outside.count(b",") >= VALUES_MAX:
        raise _invalid(f"the body has more than {VALUES_MAX} values")
    brackets = outside.translate(None, _NO_BRACKETS)[: 2 * PARTS_MAX]
    if max(accumulate(1 if each in b"[{" else -1 for each in brackets), default=0) > DEPTH_MAX:
        raise _invalid(f"the body has more than {DEPTH_MAX} lists and objects in each other")


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_json")


def _finite(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise json.JSONDecodeError(f"{text} is not a finite number", "", 0)
