"""Stored responses: what is kept, and the memory that it takes."""

from __future__ import annotations

import tracemalloc
from typing import Any

from pteron.serving.api.conversations import Conversations, StoredResponse
from pteron.serving.http import Limits


def stored(
    id: str, text: str, before: StoredResponse | None = None, asked: str | None = None
) -> StoredResponse:
    given = [] if asked is None else [message("user", asked)]
    return StoredResponse(given, {"id": id, "output": [message("assistant", text)]}, before)


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "text", "text": text}]}


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in items]


def test_the_least_used_are_dropped() -> None:
    kept = Conversations(3_000)
    for number in range(9):
        kept.add(stored(str(number), "x" * 100))
        kept.find("0")
    assert 1 < len(kept) < 6
    assert kept.find("0") is not None
    assert kept.find("1") is None
    assert kept.delete("0")
    assert not kept.delete("0")
    kept.add(stored("long", "x" * 3_000))
    assert len(kept) == 0
    assert Limits().conversation_bytes == 64 << 20


def test_earlier_turns_are_kept_once() -> None:
    kept, last = Conversations(20_000), None
    for number in range(9):
        last = stored(str(number), f"{number}" * 1_000, last, f"{number}?")
        kept.add(last)
    assert len(kept) == 9
    assert last is not None
    assert texts(last.input) == [text for n in range(8) for text in (f"{n}?", f"{n}" * 1_000)] + ["8?"]
    assert texts(last.items) == [*texts(last.input), "8" * 1_000]
    assert all(kept.delete(str(number)) for number in range(8))
    assert texts(last.items)[1] == "0" * 1_000  # a turn that a later one continues
    kept.add(stored("other", "x" * 9_000))
    assert kept.find("8") is None  # with its turns, which were still counted
    kept.add(stored("another", "x" * 9_000))
    assert len(kept) == 2


def test_the_memory_is_what_is_counted() -> None:
    """Python's objects for a response are five times as large as its JSON."""
    kept, limit = Conversations(256 << 10), 256 << 10
    tracemalloc.start()
    try:
        for number in range(1_500):
            kept.add(stored(f"resp_{number:032}", "é" * 50, asked="Hello?"))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 300 < len(kept) < 1_000
    assert 0.8 * limit < used < 1.1 * limit
