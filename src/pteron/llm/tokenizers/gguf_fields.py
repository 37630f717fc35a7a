"""The fields `tokenizer.ggml.*` of a GGUF file's metadata, checked where they are read."""

from __future__ import annotations

from collections.abc import Iterator
from reprlib import repr as shortened
from typing import Any

from pteron.errors import FormatError

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # of tokenizer.ggml.token_type


class TokenizerFields:
    tokens: list[str]  # by id
    ids: dict[str, int]  # by text
    types: list[int]  # by id

    def __init__(self, metadata: dict[str, Any], name: str) -> None:
        self.name = name
        self._metadata = metadata
        tokens = self.list_of("tokens", str)
        self.tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(tokens)]
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            twice = next(token for id, token in enumerate(self.tokens) if self.ids[token] != id)
            raise FormatError(f"{name}: two tokens have the text {shortened(twice)}")
        self.types = self.per_token("token_type", int) if "token_type" in self else [NORMAL] * len(tokens)

    def __contains__(self, key: str) -> bool:
        return PREFIX + key in self._metadata

    def list_of(self, key: str, *kinds: type) -> list[Any]:
        values = self._metadata.get(PREFIX + key)
        if not isinstance(values, list) or not {*map(type, values)} <= {*kinds}:
            raise FormatError(f"{self.name}: {PREFIX}{key} is missing or of a wrong type")
        return values

    def per_token(self, key: str, *kinds: type) -> list[Any]:
        values = self.list_of(key, *kinds)
        if len(values) < len(self.tokens):
            raise FormatError(f"{self.name}: {PREFIX}{key} has {len(values)} of {len(self.tokens)} tokens")
        return values

    def flag(self, key: str, default: bool) -> bool:
        value = self._metadata.get(PREFIX + key, default)
        if not isinstance(value, bool):
            raise FormatError(f"{self.name}: {PREFIX}{key} is {shortened(value)}, neither true nor false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._metadata.get(PREFIX + key, default)
        if not isinstance(value, str):
            raise FormatError(f"{self.name}: {PREFIX}{key} is {shortened(value)}, not a text")
        return value

    def token(self, role: str, default: int | None = None) -> int | None:
        """The id of a special token; `default`, if there is such a token, for files that do not name it."""
        key, count = f"{PREFIX}{role}_token_id", len(self.tokens)
        id = self._metadata.get(key)
        if id is None:
            return default if default is not None and default < count else None
        if not isinstance(id, int) or not 0 <= id < count:
            raise FormatError(f"{self.name}: {key} is {shortened(id)}, not one of its {count} tokens")
        return id

    def of_type(self, *types: int) -> Iterator[str]:
        return (token for token, type in zip(self.tokens, self.types, strict=False) if type in types)
