"""How much longer a tokenizer's steps can make a text, checked before the library sees the file, and how long
its model takes.

Steps that replace a character by many multiply each other, and a library that finds no memory for the result
ends the process.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from pteron.errors import FormatError, UnsupportedError

GROWTH_MAX = 512  # NFKC's own is 18, in UTF-8 of three bytes a character
PIECE_MAX = 256  # characters: from every place in a text, the longest piece is looked for
MODELS = ("BPE", "Unigram")  # WordPiece tries every end of a word, again for each of its pieces
# Normalizers that leave a text about as long, however often they are applied. All others count as doubling
# it, as ByteLevel does: it writes a byte as one or two.
STEADY = ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip", "StripAccents", "Lowercase", "BertNormalizer")


def check_growth(description: dict[str, Any], name: str) -> None:
    """Refuse a tokenizer.json whose steps may make texts much longer."""
    found = _growth(description.get("normalizer"), name) * _cutting_growth(description.get("pre_tokenizer"))
    if found > GROWTH_MAX:
        raise FormatError(f"{name}: it makes texts up to {found:.1e} times as long")


def check_model(tokenizer: Any, name: str) -> None:
    """Refuse a model that is slow by its kind, or by the length of its pieces."""
    kind = type(tokenizer.model).__name__
    if kind not in MODELS:
        raise UnsupportedError(f"{name}: a model of the kind {kind!r}; known are {', '.join(MODELS)}")
    if kind == "Unigram":
        check_pieces(tokenizer.get_vocab(), name)


def check_pieces(pieces: Iterable[str], name: str) -> None:
    longest = max(map(len, pieces), default=0)
    if longest > PIECE_MAX:
        raise FormatError(f"{name}: a piece of {longest:,} characters; up to {PIECE_MAX} are possible")


def _cutting_growth(step: Any) -> float:
    """Of what cuts a text into words: each step may write a byte as two, or a mark before every word."""
    inner = step.get("pretokenizers") if isinstance(step, dict) else None
    if not isinstance(inner, list):
        return 1.0 if step is None else 2.0
    growth = 1.0
    for each in inner:
        growth *= _cutting_growth(each)
        if growth > GROWTH_MAX:
            break
    return growth


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
    is_known = step.get("type") in STEADY or {"normalizers", "content", "prepend"} & step.keys()
    return growth if is_known or "precompiled_charsmap" in step else 2 * growth


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
