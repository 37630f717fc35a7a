"""RequestBody: reads the body of a request within its limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from starlette.types import Receive

from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits

CLOSE = {"Connection": "close"}  # the rest of the request is not read
_DISCARDED = 16  # times the limit of a body: what is read of a larger one, so that its client gets the error


_AUDIO = "/v1/audio/"


class RequestBody:
    """The time limit starts with the first message that is requested."""

    def __init__(self, receive: Receive, limits: Limits, path: str = "") -> None:
        self._receive = receive
        self._limits = limits
        self._most = limits.audio_bytes if path.startswith(_AUDIO) else limits.body_bytes
        self._size = 0
        self._is_complete = False
        self._deadline: float | None = None

    def check_length(self, header: bytes | None) -> None:
        """Reject a body that is too large by its Content-Length header, before it is read."""
        if header is not None and header.isdigit():
            self._check(int(header[:20]))  # int() refuses thousands of digits

    async def receive(self) -> MutableMapping[str, Any]:
        """The next ASGI message."""
        if self._is_complete:  # the next message is the client's disconnect, which has no deadline
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            text = f"the request did not arrive within {self._limits.body_seconds:g} seconds"
            raise ApiError(408, text, code="timeout", headers=CLOSE) from None
        self._size += len(message.get("body", b""))
        self._check(self._size)
        self._is_complete = not message.get("more_body", False)
        return message

    async def read(self) -> bytes | None:
        """The whole body; None if the client disconnected."""
        found = bytearray()
        while not self._is_complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                return None
            found += message.get("body", b"")
        return bytes(found)

    async def discard(self) -> None:
        """Read the rest of a body that is too large, within limits. Closing a connection with unread data
        resets it, and a client that is still sending would not get to read the error."""
        deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline or deadline):
                while not self._is_complete and self._size < _DISCARDED * self._most:
                    message = await self._receive()
                    self._size += len(message.get("body", b""))
                    self._is_complete = not message.get("more_body", False)

    def _check(self, size: int) -> None:
        if size > self._most:
            text = f"the request has {size} bytes or more; the limit is {self._most}"
            raise ApiError(413, text, code="request_too_large", headers=CLOSE)
