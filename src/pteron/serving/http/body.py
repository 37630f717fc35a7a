"""A request's body, as long as it may be and in the time that it may take.

In: the messages of a web server. Out: the same, one by one or all of a body together; an error that the
client is told where there are too many bytes or they come too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from starlette.types import Receive

from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits

CLOSE = {"Connection": "close"}  # what is left of the request is not read


class Body:
    """The time begins with the first message that is asked for."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._size = 0
        self._is_whole = False
        self._until: float | None = None

    def check_length(self, header: bytes | None) -> None:
        """Refuse a body by the length that its request announces, before any of it is read."""
        if header is not None and header.isdigit():
            self._check(int(header[:20]))  # Python makes no number of thousands of digits

    async def receive(self) -> MutableMapping[str, Any]:
        """The next message."""
        if self._is_whole:  # then what comes is that the client leaves
            return await self._receive()
        clock = asyncio.get_running_loop()
        if self._until is None:
            self._until = clock.time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            text = f"the request did not arrive within {self._limits.body_seconds:g} seconds"
            raise ApiError(408, text, code="timeout", headers=CLOSE) from None
        self._size += len(message.get("body", b""))
        self._check(self._size)
        self._is_whole = not message.get("more_body", False)
        return message

    async def read(self) -> bytes | None:
        """All of it; None where its client left before."""
        found = bytearray()
        while not self._is_whole:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                return None
            found += message.get("body", b"")
        return bytes(found)

    def _check(self, size: int) -> None:
        if size > self._limits.body_bytes:
            text = f"the request has {size} bytes or more; this server takes {self._limits.body_bytes}"
            raise ApiError(413, text, code="request_too_large", headers=CLOSE)
