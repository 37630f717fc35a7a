"""Conversations: the responses of /v1/responses that a client may refer to, in memory and bounded.

They are kept as JSON: Python's objects would take five times as much memory.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from pteron.serving.http.sse import encode_json

_OBJECTS = 400  # bytes of a turn beside its JSON: its id, its entry and so on


class StoredResponse:
    """A response as its client got it, the items that were its input, and the turn before."""

    __slots__ = ("_data", "before", "holders", "id")

    def __init__(
        self,
        input: Sequence[dict[str, Any]],
        response: dict[str, Any],
        before: StoredResponse | None = None,
    ) -> None:
        self.id: str = response["id"]
        self.before = before
        self.holders = 0  # later turns, and 1 for its own id: see Conversations
        self._data = encode_json({"input": input, "response": response})

    @property
    def size(self) -> int:
        """Its bytes, without the turns before."""
        return len(self._data) + _OBJECTS

    @property
    def response(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._data)["response"]
        return found

    @property
    def input(self) -> list[dict[str, Any]]:
        """The items before the response: those of earlier turns with their answers, then its input."""
        before = [] if self.before is None else self.before.items
        return [*before, *json.loads(self._data)["input"]]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The conversation, with the answer."""
        turns: list[Any] = []
        turn: StoredResponse | None = self
        while turn is not None:
            turns.append(json.loads(turn._data))
            turn = turn.before
        return [item for each in reversed(turns) for item in (*each["input"], *each["response"]["output"])]


class Conversations:
    """Responses by their ids. The one that was used least recently is dropped first; its turn stays in memory
    while a later one is kept, and is counted once."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, stored: StoredResponse) -> None:
        self._kept[stored.id] = stored
        turn: StoredResponse | None = stored
        while turn is not None:
            turn.holders += 1
            if turn.holders > 1:
                break
            self._size += turn.size
            turn = turn.before
        while self._size > self._bytes_max:
            self.delete(next(iter(self._kept)))

    def find(self, id: str) -> StoredResponse | None:
        if id not in self._kept:
            return None
        self._kept.move_to_end(id)
        return self._kept[id]

    def delete(self, id: str) -> bool:
        """Whether there was such a response."""
        found = turn = self._kept.pop(id, None)
        while turn is not None:
            turn.holders -= 1
            if turn.holders:
                break
            self._size -= turn.size
            turn = turn.before
        return found is not None
