"""API keys: which clients may use the server. Keys are compared in constant time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import compare_digest

from pteron.errors import InputError
from pteron.format.source import read_file

VARIABLE = "PTERON_API_KEYS"  # keys separated by commas
_FILE_BYTES_MAX = 1 << 20


class ApiKeys:
    """The keys of a server. Without keys every client is allowed."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = [_checked(key).encode() for key in keys]

    def allow(self, authorization: bytes | None) -> bool:
        """Whether an Authorization header has a valid key."""
        scheme, _, key = (authorization or b"").strip().partition(b" ")
        is_known = any(compare_digest(known, key.strip()) for known in self._keys)
        return not self._keys or (is_known and scheme.lower() == b"bearer")


def read_api_keys(
    keys: Iterable[str], file: str | os.PathLike[str] | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The keys of the command line, of a file with one per line, and of the environment."""
    found = list(keys)
    if file is not None:
        try:
            lines = read_file(Path(file), _FILE_BYTES_MAX).decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not UTF-8 text: {error}") from error
        read = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not read:
            raise InputError(f"{file} has no key; write one per line")
        found += read
    found += [key.strip() for key in environment.get(VARIABLE, "").split(",") if key.strip()]
    return tuple(dict.fromkeys(found))


def _checked(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("an API key must consist of printable ASCII characters without spaces")
    return key
