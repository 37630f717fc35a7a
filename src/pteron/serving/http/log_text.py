"""The log for a person at a terminal: one short line per request.

10:29:00 POST /v1/chat/completions smollm2 200 23 + 50 tokens 0.39 s
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

_PATH_MAX = 80  # characters


def text_line(fields: Mapping[str, Any]) -> str | None:
    """A line for what `Logs` writes; None for what only a log file needs."""
    event = fields["event"]
    if event == "request":
        words = _request(fields)
    elif event == "failure":
        words = ["failure", fields["error"]]
    elif event == "server" and fields.get("level") == "info":
        return None
    else:
        words = [fields.get("model", ""), fields.get("level", ""), fields["message"]]
    clock = datetime.fromisoformat(fields["time"]).astimezone().strftime("%H:%M:%S")
    line = " ".join(word for word in (clock, *map(_printable, words)) if word)
    trace = fields.get("trace", "").rstrip()
    return "\n".join([line, *map(_printable, trace.split("\n"))]) if trace else line


def _request(fields: Mapping[str, Any]) -> list[str]:
    words = [fields["method"], fields.get("path", fields["route"])[:_PATH_MAX], fields.get("model", "")]
    words.append(str(fields["status"]))
    if "new_tokens" in fields:
        words.append(f"{fields['prompt_tokens']} + {fields['new_tokens']} tokens")
    words.append(f"{fields['seconds']:.2f} s")
    return [*words, "the client left" if fields.get("abandoned") else fields.get("error", "")]


def _printable(text: str) -> str:
    """Without control characters of a request, on which a terminal would act, and without line ends, after
    which a request could write a line of its own."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
