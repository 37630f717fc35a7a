"""Conversations: what `previous_response_id` of /v1/responses refers to, in memory and bounded."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

Messages: TypeAlias = Sequence[dict[str, Any]]  # in OpenAI's chat format


class Conversations:
    """The messages up to each response, by its id. The one that was used least recently is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, tuple[Messages, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, id: str, messages: Messages) -> None:
        size = len(json.dumps(messages))
        self._kept[id] = (messages, size)
        self._size += size
        while self._size > self._bytes_max:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= dropped

    def find(self, id: str) -> Messages | None:
        if id not in self._kept:
            return None
        self._kept.move_to_end(id)
        return self._kept[id][0]
