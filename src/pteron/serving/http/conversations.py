"""Conversations: the responses of /v1/responses that a client may refer to, in memory and bounded."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as its client got it, and the items before it: those of earlier turns, then its input."""

    input: list[dict[str, Any]]
    response: dict[str, Any]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The conversation, with the answer."""
        return [*self.input, *self.response["output"]]


class Conversations:
    """Responses by their ids. The one that was used least recently is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, stored: StoredResponse) -> None:
        size = len(json.dumps([stored.input, stored.response]))
        self._kept[stored.response["id"]] = (stored, size)
        self._size += size
        while self._size > self._bytes_max:
            self.delete(next(iter(self._kept)))

    def find(self, id: str) -> StoredResponse | None:
        if id not in self._kept:
            return None
        self._kept.move_to_end(id)
        return self._kept[id][0]

    def delete(self, id: str) -> bool:
        """Whether there was such a response."""
        _, size = self._kept.pop(id, (None, 0))
        self._size -= size
        return size > 0
