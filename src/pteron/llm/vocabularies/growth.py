"""How much longer a tokenizer's normalizer can make a text: checked before the library sees the file.

Steps that replace a character by many multiply each other, and a library that finds no memory for the result
ends the process.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pteron.errors import FormatError

GROWTH_MAX = 512  # NFKC's own is 18, in UTF-8 of three bytes a character


def check_growth(description: dict[str, Any], name: str) -> None:
    """Refuse a tokenizer.json whose normalizer may make texts much longer."""
    found = _growth(description.get("normalizer"), name)
    if found > GROWTH_MAX:
        raise FormatError(f"{name}: its normalizer makes texts up to {found:.1e} times as long")


def _growth(step: Any, name: str) -> float:
    """By their fields: the library takes steps without a type, too."""
    if isinstance(step, list):
        growth = 1.0
        for inner in step:
            growth *= _growth(inner, name)
            if growth > GROWTH_MAX:
                break
        return growth
    if not isinstance(step, dict):
        return 1.0
    growth = _growth(step.get("normalizers"), name)
    for field in ("content", "prepend"):
        if isinstance(text := step.get(field), str):
            # A pattern may match single characters, and none at all between them.
            growth *= 1 + len(text.encode("utf-8", "replace")) / _least(step.get("pattern"))
    if "precompiled_charsmap" in step:
        growth *= _charsmap_growth(step["precompiled_charsmap"], name)
    return growth


def _least(pattern: Any) -> int:
    """The bytes that a pattern takes at least, counted as one where that is not known."""
    text = pattern.get("String") if isinstance(pattern, dict) else None
    return max(1, len(text.encode("utf-8", "replace"))) if isinstance(text, str) else 1


def _charsmap_growth(encoded: Any, name: str) -> int:
    """SentencePiece's table: the size of a trie in four bytes, the trie, replacements that end in zeros."""
    try:
        data = base64.b64decode(encoded or "", validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise FormatError(f"{name}: its table of characters is not base64: {error}") from error
    end = 4 + int.from_bytes(data[:4], "little")
    if end > len(data) and data:
        raise FormatError(f"{name}: its table of characters is cut off")
    return max(1, *map(len, data[end:].split(b"\0")))
