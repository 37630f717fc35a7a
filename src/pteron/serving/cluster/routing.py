"""Chooses the replica for a request, so that the turns of a conversation reuse one KV cache. Needs no Ray.

In: a request's body and the names of the replicas. Out: the key of its conversation, and replicas in order of
preference. The turns of a conversation begin with the same messages; the key is a digest of these. Every
proxy computes the same preferred replica: the one whose name and the key together give the greatest digest
(rendezvous hashing). When a replica starts or ends, only its own conversations move.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from pteron.serving.http.errors import ApiError
from pteron.serving.http.json_body import parse_json

_CHARACTERS = 512  # of a prompt; its beginning stays the same while it grows
_PATHS = ("/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate")


def conversation_key(path: str, body: bytes) -> str:
    """The key of the conversation that a request belongs to; empty if it belongs to none."""
    if not path.endswith(_PATHS):
        return ""
    try:
        request = parse_json(body)
        beginning = _beginning(request) if isinstance(request, dict) else None
        if beginning is None:
            return ""
        text = json.dumps([request.get("model"), beginning], sort_keys=True)
    except ApiError:  # the replica reports what is wrong with the body
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _beginning(request: dict[str, Any]) -> object:
    """The part of a request that its conversation's next turn repeats."""
    messages, prompt = request.get("messages"), request.get("prompt")
    if messages is None and "input" in request:  # of /v1/responses
        given = request["input"]
        messages = given if isinstance(given, list) else [{"role": "user", "content": given}]
    if isinstance(messages, list):
        named = [request[name] for name in ("system", "instructions") if request.get(name)]
        return [request.get("tools"), *named, _opening(messages)]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]  # several prompts follow the first one
    return prompt[:_CHARACTERS] if isinstance(prompt, str | list) else None


def _opening(messages: list[Any]) -> list[Any]:
    """The messages up to the user's first: those before it are often the same for all users."""
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: index + 1]
    return messages[:1]


def preferred_replica(key: str, names: Sequence[str]) -> str:
    return max(names, key=lambda name: hashlib.sha256(f"{key}\n{name}".encode()).digest())


def rank_replicas(
    key: str, names: Sequence[str], queued: Callable[[str], int | None], busy: int
) -> list[list[str]]:
    """Replicas in ranks; Ray takes the less busy one of a rank.

    The preferred replica comes first, then two random others. If the preferred one has `busy` requests or
    more, the others come first; `queued` returns None if the number is unknown. A request without a key goes
    to one of two random replicas.
    """
    if not names:
        return []
    if not key:
        return [_pair(names)]
    first = preferred_replica(key, names)
    others = [name for name in names if name != first]
    if not others:
        return [[first]]
    count = queued(first)
    is_full = count is not None and count >= busy
    return [_pair(others), [first]] if is_full else [[first], _pair(others)]


def _pair(names: Sequence[str]) -> list[str]:
    return random.sample(names, min(2, len(names)))
