"""Server-sent events, and JSON."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


def encode_event(content: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event; some APIs name events."""
    return (f"event: {name}\n" if name else "").encode() + b"data: " + encode_json(content) + b"\n\n"


def encode_json(content: dict[str, Any]) -> bytes:
    """JSON in UTF-8. A model may write half of a surrogate pair, which becomes a question mark."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
