"""JsonRoute: routes whose bodies are strict JSON in UTF-8.

Python's parser also accepts NaN, infinite numbers and halves of surrogate pairs. A response that repeats a
field of its request could not be written with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute


class JsonRoute(APIRoute):
    """A route whose request parses its body with `parse_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    async def json(self) -> Any:
        return parse_json(await self.body())


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. JSONDecodeError: it has a number that is not finite, or a lone surrogate."""
    found = json.loads(data, parse_constant=_refuse_number, parse_float=_finite)
    if b"\\u" in data:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = f"\\u{ord(error.object[error.start]):x}"
            raise json.JSONDecodeError(f"{surrogate} is half of a surrogate pair", "", 0) from None
    return found


def _finite(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise json.JSONDecodeError(f"{text} is not a finite number", "", 0)
