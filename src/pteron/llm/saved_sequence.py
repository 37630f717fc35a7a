"""A KV cache as a file: tokens, and their rows in each cache.

    8 bytes   "PTERONkv"
    4         the version; all numbers are little-endian
    4         bytes of the header
              the header, JSON: program (digest), tokens, caches [[state, bytes of a row], ...]
              the rows of all tokens, cache by cache in this order
    32        SHA-256 of everything before

Files are not trusted. The program determines the caches that a file must contain, so the file's size follows
from the number of tokens; it is checked before memory is allocated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from struct import Struct
from typing import BinaryIO
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError
from pteron.format.source import open_file, pieces
from pteron.graph.values import tensors
from pteron.llm.model import LanguageModel
from pteron.runtime import Program

_MAGIC, _VERSION = b"PTERONkv", 1
_START = Struct("<8sII")
_DIGEST_BYTES = 32
_STAGING = 1 << 22
# A header has one number per token and three per cache. A number takes up to ten digits, a comma and a space.
_HEADER_BYTES, _BYTES_PER_NUMBER = 1 << 12, 12

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a program's caches, which a file must match."""

    program: str  # digest
    row_bytes: Mapping[int, int]  # by the state's id
    context: int
    vocabulary: int

    def header_bytes_max(self) -> int:
        return _HEADER_BYTES + _BYTES_PER_NUMBER * (self.context + 3 * len(self.row_bytes))

    def caches(self) -> list[list[int]]:
        return [[id, size] for id, size in self.row_bytes.items()]


def layout_of(model: LanguageModel) -> Layout:
    """The layout of a model's caches. Its program is read and hashed once."""
    program = model.program
    if program not in _digests:
        _digests[program] = _digest(program, model.method.name)
    return Layout(_digests[program], model.check_rows(), model.context, model.vocabulary)


_digests: WeakKeyDictionary[Program, str] = WeakKeyDictionary()


def _digest(program: Program, method: str) -> str:
    """SHA-256 of a method's graphs and weights."""
    found = hashlib.sha256()
    staging = memoryview(bytearray(_STAGING))
    (record,) = (record for record in program.file.methods if record.name == method)
    for delegate in record.delegates:
        _add(found, delegate.blob, staging)
    for graph in program.graphs(method):
        values = (tensor for node in graph.nodes for value in node.args for tensor in tensors(value))
        constants = {tensor.id: tensor.constant for tensor in values}
        for id, constant in sorted(constants.items()):
            if constant is not None:
                found.update(f"{id} {constant.dtype} {constant.shape} ".encode())
                _add(found, constant.data, staging)
    return found.hexdigest()


def _add(digest: hashlib._Hash, data: memoryview, staging: memoryview) -> None:
    digest.update(len(data).to_bytes(8, "little"))
    for piece in pieces(data, staging):
        digest.update(piece)


def write_saved(path: Path, layout: Layout, tokens: Sequence[int], rows: Iterable[bytes]) -> None:
    """Write a file atomically."""
    header = {"program": layout.program, "tokens": list(tokens), "caches": layout.caches()}
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = [_START.pack(_MAGIC, _VERSION, len(text)), text, *rows]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            _write_all(file, [*parts, digest.digest()])
        unfinished.replace(path)
    except OSError as error:
        raise InputError(f"{path}: the cache cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # already renamed, unless an error occurred
            unfinished.unlink()


def _write_all(file: BinaryIO, parts: Iterable[bytes]) -> None:
    file.writelines(parts)
    file.flush()
    os.fsync(file.fileno())


def read_saved(path: Path, layout: Layout) -> tuple[list[int], list[Rows]]:
    """The tokens of a file, and their rows in each cache."""
    with open_file(path) as file:
        try:
            return _Reading(path, file, layout).read()
        except OSError as error:
            raise FormatError(f"{path}: the file cannot be read ({error.strerror})") from error


class _Reading:
    """Reads one file."""

    def __init__(self, path: Path, file: BinaryIO, layout: Layout) -> None:
        self._path = path
        self._file = file
        self._layout = layout
        self._digest = hashlib.sha256()

    def read(self) -> tuple[list[int], list[Rows]]:
        size = os.fstat(self._file.fileno()).st_size
        start = _START.size
        if size < start + _DIGEST_BYTES:
            raise self._error(f"{size} bytes are too few for a saved KV cache")
        magic, version, length = _START.unpack(self._take(start))
        if magic != _MAGIC:
            raise self._error("not a KV cache written by llm.save")
        if version != _VERSION:
            raise self._error(f"version {version}; this Pteron reads version {_VERSION}")
        if length > min(self._layout.header_bytes_max(), size - start - _DIGEST_BYTES):
            raise self._error(f"a header of {length:,} bytes, in a file of {size:,}")
        tokens = self._tokens(self._take(length))
        sizes = [len(tokens) * each for each in self._layout.row_bytes.values()]
        expected = start + length + sum(sizes) + _DIGEST_BYTES
        if size != expected:
            raise self._error(f"{size:,} bytes; {len(tokens)} tokens of this program take {expected:,}")
        rows = [np.frombuffer(self._take(each), np.uint8) for each in sizes]
        if self._digest.digest() != self._file.read(_DIGEST_BYTES):
            raise self._error("the file is damaged: its checksum does not match")
        return tokens, rows

    def _take(self, size: int) -> bytes:
        """The next `size` bytes."""
        taken = bytearray(size)
        unread = memoryview(taken)
        while unread:
            count = self._file.readinto(unread)  # type: ignore[attr-defined]  # unbuffered
            if not count:
                raise self._error(f"the file ends {len(unread):,} bytes too early")
            unread = unread[count:]
        self._digest.update(taken)
        return taken  # type: ignore[return-value]  # not modified

    def _tokens(self, text: bytes) -> list[int]:
        """The tokens of a header that matches this program."""
        try:
            header = json.loads(bytes(text))
        except (ValueError, RecursionError):
            raise self._error("its header is not JSON") from None
        if not isinstance(header, dict) or header.keys() != {"program", "tokens", "caches"}:
            raise self._error("its header does not name a program, tokens and caches")
        if header["program"] != self._layout.program:
            raise self._error("a cache of another program, or of other weights")
        if header["caches"] != self._layout.caches():
            raise self._error("its cache layout differs from this device's")
        tokens = header["tokens"]
        layout = self._layout
        are_ids = isinstance(tokens, list) and all(
            type(token) is int and 0 <= token < layout.vocabulary for token in tokens
        )
        if not are_ids or not 0 < len(tokens) <= layout.context:
            raise self._error(
                f"its tokens are not 1 to {layout.context:,} numbers below {layout.vocabulary:,}"
            )
        return list(tokens)

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self._path}: {what}")
