"""API keys: which clients may use the server. A wrong key takes as long to compare as a right one."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pteron.errors import InputError
from pteron.format.source import read_file

VARIABLE = "PTERON_API_KEYS"  # keys separated by commas
_FILE_BYTES_MAX = 1 << 20


class ApiKeys:
    """The digests of a server's keys. Without keys every client is allowed."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(_checked(key).encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether an Authorization header has a valid key."""
        if not self._digests:
            return True
        scheme, _, key = (authorization or b"").strip().partition(b" ")
        digest = _digest(key.strip())
        found = False
        for known in self._digests:  # compare all, so that the time does not depend on the key
            found |= hmac.compare_digest(known, digest)
        return found and scheme.lower() == b"bearer"


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


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
