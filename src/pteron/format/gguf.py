"""A GGUF file -> its metadata, the fields by name as Python values, and descriptions of its tensors.

Only the head of the file is read. The reader of the `gguf` package makes an array for each string, which
takes half a minute for a vocabulary of 128,000 tokens.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.format.source import open_file

MAGIC = b"GGUF"
JOIN_PARTS = "join them with llama.cpp's `llama-gguf-split --merge FIRST_PART NEW_FILE` and give the new file"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


_RANK_MAX = 8
_ALIGNMENT_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class TensorInfo:
    name: str
    shape: tuple[int, ...]  # outermost first, unlike in the file
    type: int  # of the elements, as ggml numbers them
    offset: int  # in the file, in bytes


@dataclass(frozen=True, slots=True)
class Header:
    fields: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


def read_metadata(file: Path) -> dict[str, Any]:
    """The fields of a GGUF file, such as "general.architecture"."""
    with open_file(file) as opened:
        return _Reader(opened, file.name).metadata()[0]


def read_header(file: Path) -> Header:
    with open_file(file) as opened:
        reader = _Reader(opened, file.name)
        fields, count = reader.metadata()
        reader.require(count, 24, "tensors")  # a tensor has a name's length, a rank, a type and an offset
        tensors = [reader.tensor() for _ in range(count)]
        base = reader.aligned(fields.get("general.alignment", 32))
    return Header(fields, tuple(replace(tensor, offset=base + tensor.offset) for tensor in tensors))


class _Reader:
    """Reads little-endian values one after another; none reaches past the end of the file."""

    def __init__(self, file: io.FileIO | Any, name: str) -> None:
        self._size = self._left = os.fstat(file.fileno()).st_size
        self._file = io.BufferedReader(file, 1 << 20)
        self._name = name

    def require(self, count: int, size: int, what: str) -> None:
        if count * size > self._left:
            raise FormatError(
                f"{self._name} is damaged: {count} {what}, but only {self._left} bytes are left; if the "
                "download was cut, download it again"
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

    def metadata(self) -> tuple[dict[str, Any], int]:
        """The fields, and the number of tensors that follow."""
        if self.take(4) != MAGIC:
            raise FormatError(f"{self._name} is not a GGUF file: it does not begin with {MAGIC.decode()}")
        version = self.number("I")
        if version not in (2, 3):
            raise UnsupportedError(
                f"{self._name}: GGUF version {version}; known are 2 and 3, little-endian: convert it again"
            )
        tensors, count = self.number("Q"), self.number("Q")
        self.require(count, 13, "fields")  # a field has a name's length, a type and a byte at least
        return dict(self.field() for _ in range(count)), tensors

    def tensor(self) -> TensorInfo:
        """A tensor, with its offset from the first one."""
        name, rank = self.string(), self.number("I")
        if rank > _RANK_MAX:
            raise FormatError(f"{self._name} is damaged: tensor {name} has {rank} dimensions")
        sizes = tuple(self.number("Q") for _ in range(rank))
        return TensorInfo(name, sizes[::-1], self.number("I"), self.number("Q"))

    def aligned(self, alignment: Any) -> int:
        """The next position that is a multiple of `alignment`."""
        if not isinstance(alignment, int) or not 0 < alignment <= _ALIGNMENT_MAX:
            raise FormatError(f"{self._name} is damaged: an alignment of {alignment}")
        return -(-(self._size - self._left) // alignment) * alignment

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
