"""The bytes of a GGUF file enter; its metadata and descriptions of its tensors leave, all lengths checked.

The `gguf` package has a reader too, but it takes seconds for the tokens of a vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, unpack_from
from typing import Any

from pteron.errors import FormatError
from pteron.format.source import FileBytes, contents

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
# Struct formats of metadata types.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "Q": 8, "q": 8, "d": 8}
_RANK_MAX = 8
_FIRST_READ = 1 << 24  # bytes: enough for most vocabularies


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


class _EndOfBufferError(Exception):
    pass


def read_header(file: FileBytes) -> Header:
    size = _FIRST_READ
    while True:
        buffer = bytes(contents(file.view[:size]))
        try:
            return _Parser(buffer, file.name).header()
        except _EndOfBufferError:
            if len(buffer) == len(file.view):
                raise FormatError(f"{file.name} is damaged: it ends inside its header") from None
            size *= 4


class _Parser:
    def __init__(self, buffer: bytes, name: str) -> None:
        self.buffer, self.name, self.position = buffer, name, 0

    def header(self) -> Header:
        magic = self.take("4s")
        version = self.take("I")
        if magic != _MAGIC or version not in _VERSIONS:
            raise self.error(f"version {version}; known are {_VERSIONS}")
        tensor_count, field_count = self.take("Q"), self.take("Q")
        fields: dict[str, Any] = {}
        for _ in range(field_count):  # ends at the buffer's end at the latest
            key = self.text()
            fields[key] = self.value(self.take("I"))
        tensors = [self.tensor() for _ in range(tensor_count)]
        alignment = fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise self.error(f"an alignment of {alignment}")
        base = -(-self.position // alignment) * alignment
        found = tuple(TensorInfo(name, shape, kind, base + offset) for name, shape, kind, offset in tensors)
        return Header(fields, found)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self.text(), self.take("I")
        if rank > _RANK_MAX:
            raise self.error(f"tensor {name} has {rank} dimensions")
        sizes = tuple(self.take("Q") for _ in range(rank))
        return name, sizes[::-1], self.take("I"), self.take("Q")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(self.take("I"), self.take("Q"))
        if kind not in _SCALARS:
            raise self.error(f"metadata of type {kind}")
        value = self.take(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value

    def array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            if count * 8 > len(self.buffer) - self.position:
                raise _EndOfBufferError
            return [self.text() for _ in range(count)]
        if kind not in _SCALARS:
            raise self.error(f"an array of type {kind}")
        form = _SCALARS[kind]
        end = self.position + count * _SIZES[form]
        if end > len(self.buffer):
            raise _EndOfBufferError
        values = list(unpack_from(f"<{count}{form}", self.buffer, self.position))
        self.position = end
        return [bool(value) for value in values] if kind == _BOOL else values

    def text(self) -> str:
        length = self.take("Q")
        end = self.position + length
        if end > len(self.buffer):
            raise _EndOfBufferError
        text = self.buffer[self.position : end].decode("utf-8", "replace")
        self.position = end
        return text

    def take(self, form: str) -> Any:
        kind = _STRUCTS.get(form) or _STRUCTS.setdefault(form, Struct(f"<{form}"))
        end = self.position + kind.size
        if end > len(self.buffer):
            raise _EndOfBufferError
        (value,) = kind.unpack_from(self.buffer, self.position)
        self.position = end
        return value

    def error(self, problem: str) -> FormatError:
        return FormatError(f"{self.name} is damaged or of another format, at byte {self.position}: {problem}")


_STRUCTS: dict[str, Struct] = {}
