"""A GGUF file -> its metadata: the fields by name, as Python values.

Only the head of the file is read. The reader of the `gguf` package makes an array for each string, which
takes half a minute for a vocabulary of 128,000 tokens.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.format.source import open_file

MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_metadata(file: Path) -> dict[str, Any]:
    """The fields of a GGUF file, such as "general.architecture"."""
    with open_file(file) as opened:
        reader = _Reader(opened, file.name)
        if reader.take(4) != MAGIC:
            raise FormatError(f"{file.name} is not a GGUF file: it does not begin with {MAGIC.decode()}")
        version = reader.number("I")
        if version not in (2, 3):
            raise UnsupportedError(
                f"{file.name}: GGUF version {version}; known are 2 and 3, little-endian: convert it again"
            )
        _, count = reader.number("Q"), reader.number("Q")  # tensors, fields
        reader.require(count, 13, "fields")  # a field has a name's length, a type and a byte at least
        return dict(reader.field() for _ in range(count))


class _Reader:
    """Reads little-endian values one after another; none reaches past the end of the file."""

    def __init__(self, file: io.FileIO | Any, name: str) -> None:
        self._left = os.fstat(file.fileno()).st_size
        self._file = io.BufferedReader(file, 1 << 20)
        self._name = name

    def require(self, count: int, size: int, what: str) -> None:
        if count * size > self._left:
            raise FormatError(
                f"{self._name} is damaged: {count} {what}, but only {self._left} bytes are left"
            )

    def take(self, size: int) -> bytes:
        self.require(size, 1, "bytes")
        self._left -= size
        return self._file.read(size)

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def string(self) -> str:
        try:
            return self.take(int.from_bytes(self.take(8), "little")).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._name} is damaged: a text that is not UTF-8: {error}") from error

    def field(self) -> tuple[str, Any]:
        name = self.string()
        return name, self._value(self.number("I"), name)

    def _value(self, kind: int, name: str) -> Any:
        if kind == _STRING:
            return self.string()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise FormatError(f"{self._name} is damaged: {name} is of unknown type {kind}")
        kind, count = self.number("I"), self.number("Q")
        if kind in _NUMBERS:
            size = struct.calcsize(f"<{_NUMBERS[kind]}")
            self.require(count, size, f"numbers in {name}")
            return list(struct.unpack(f"<{count}{_NUMBERS[kind]}", self.take(count * size)))
        if kind == _STRING:
            self.require(count, 8, f"texts in {name}")
            return [self.string() for _ in range(count)]
        raise FormatError(f"{self._name} is damaged: {name} is a list of type {kind}")
