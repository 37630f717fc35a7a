"""API keys: who may use the server.

In: an Authorization header. Out: whether it holds one of the keys. Comparing takes as long for a wrong key as
for a right one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pteron.errors import InputError
from pteron.format.source import read_file

VARIABLE = "PTERON_API_KEYS"  # keys with commas between them
_FILE_BYTES_MAX = 1 << 20


class Keys:
    """The keys of a server, by their digests: those of no key let everybody in."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(_checked(key).encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether a header names a key, or none is needed."""
        if not self._digests:
            return True
        scheme, _, key = (authorization or b"").strip().partition(b" ")
        digest = _digest(key.strip())
        found = False
        for known in self._digests:  # all of them, whichever fits
            found |= hmac.compare_digest(known, digest)
        return found and scheme.lower() == b"bearer"


def given_keys(
    keys: Iterable[str], file: str | os.PathLike[str] | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Keys from arguments, from a file with one in each line, and from the environment."""
    found = list(keys)
    if file is not None:
        try:
            lines = read_file(Path(file), _FILE_BYTES_MAX).decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not UTF-8 text: {error}") from error
        read = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not read:
            raise InputError(f"{file} holds no key; one stands in each line")
        found += read
    found += [key.strip() for key in environment.get(VARIABLE, "").split(",") if key.strip()]
    return tuple(dict.fromkeys(found))


def _checked(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("an API key must be of printable ASCII characters without spaces")
    return key


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
