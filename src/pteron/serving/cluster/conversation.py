"""Which requests belong together: the body of a request -> a key that all turns of a conversation share.

A conversation's turns begin with the same messages. So do their prompts, and whoever has read one of them has
the beginning of the next in its cache.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_CHARACTERS = 512  # of a text, whose beginning stays the same while it grows


def key_of(path: str, body: bytes) -> str:
    """The conversation that a request belongs to; empty where it belongs to none."""
    if not path.endswith(("/chat/completions", "/completions")):
        return ""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):  # whoever answers says what is wrong with it
        return ""
    beginning = _beginning(asked) if isinstance(asked, dict) else None
    if beginning is None:
        return ""
    try:
        text = json.dumps([asked.get("model"), beginning], sort_keys=True)
    except (ValueError, RecursionError):
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _beginning(asked: dict[str, Any]) -> object:
    """What the next turn will begin with, too."""
    messages, prompt = asked.get("messages"), asked.get("prompt")
    if isinstance(messages, list):
        return [asked.get("tools"), _opening(messages)]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]  # several prompts go where the first one does
    return prompt[:_CHARACTERS] if isinstance(prompt, str | list) else None


def _opening(messages: list[Any]) -> list[Any]:
    """Up to what the user says first: what comes before is often the same for all users."""
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: index + 1]
    return messages[:1]
