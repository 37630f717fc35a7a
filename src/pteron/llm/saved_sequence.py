"""A sequence's cache as a file: the tokens that it has read, and what they have left in each of the caches.

    8 bytes   "PTERONkv"
    4         the version, little-endian as all that follows
    4         bytes of the header
              the header, JSON: program (digest), tokens, caches [[state, bytes of a row], ...]
              of each cache in this order, the rows of all tokens
    32        SHA-256 of everything before

Nothing in a file is believed. What it should be is known from the program: its size follows from the number
of tokens, and is compared before memory is taken for it.
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
# A header is at most its caches and its tokens, each a number of at most ten digits, a comma and a space.
_HEADER_BYTES, _BYTES_PER_NUMBER = 1 << 12, 12

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a program's caches are like: a file must agree with all of it."""

    program: str  # its digest
    row_bytes: Mapping[int, int]  # by the state's id
    context: int
    vocabulary: int

    def header_bytes_max(self) -> int:
        return _HEADER_BYTES + _BYTES_PER_NUMBER * (self.context + 3 * len(self.row_bytes))

    def caches(self) -> list[list[int]]:
        return [[id, size] for id, size in self.row_bytes.items()]


def layout_of(model: LanguageModel) -> Layout:
    """How the caches of a model lie in a file. Its program is read for that, once."""
    program = model.program
    if program not in _digests:
        _digests[program] = _digest(program, model.method.name)
    return Layout(_digests[program], model.check_rows(), model.context, model.vocabulary)


_digests: WeakKeyDictionary[Program, str] = WeakKeyDictionary()


def _digest(program: Program, method: str) -> str:
    """A method's graphs and weights, in 64 hexadecimal digits."""
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
    """Put a file in place, all of it or nothing."""
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
        with suppress(OSError):  # there is none where all went well
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
    """One file, from its first byte to its last."""

    def __init__(self, path: Path, file: BinaryIO, layout: Layout) -> None:
        self._path = path
        self._file = file
        self._layout = layout
        self._digest = hashlib.sha256()

    def read(self) -> tuple[list[int], list[Rows]]:
        size = os.fstat(self._file.fileno()).st_size
        start = _START.size
        if size < start + _DIGEST_BYTES:
            raise self._error(f"{size} bytes are too few for a sequence's cache")
        magic, version, length = _START.unpack(self._take(start))
        if magic != _MAGIC:
            raise self._error("this is not a sequence's cache, as llm.save writes it")
        if version != _VERSION:
            raise self._error(f"a cache of version {version}, and this Pteron reads version {_VERSION}")
        if length > min(self._layout.header_bytes_max(), size - start - _DIGEST_BYTES):
            raise self._error(f"a header of {length:,} bytes, in a file of {size:,}")
        tokens = self._tokens(self._take(length))
        sizes = [len(tokens) * each for each in self._layout.row_bytes.values()]
        expected = start + length + sum(sizes) + _DIGEST_BYTES
        if size != expected:
            raise self._error(f"{size:,} bytes; {len(tokens)} tokens of this program take {expected:,}")
        rows = [np.frombuffer(self._take(each), np.uint8) for each in sizes]
        if self._digest.digest() != self._file.read(_DIGEST_BYTES):
            raise self._error("the file is damaged: its bytes are not those that were written")
        return tokens, rows

    def _take(self, size: int) -> bytes:
        """So many bytes more; the file may have become shorter meanwhile."""
        taken = bytearray(size)
        unread = memoryview(taken)
        while unread:
            count = self._file.readinto(unread)  # type: ignore[attr-defined]  # it is not buffered
            if not count:
                raise self._error(f"the file ends {len(unread):,} bytes too early")
            unread = unread[count:]
        self._digest.update(taken)
        return taken  # type: ignore[return-value]  # nobody changes it

    def _tokens(self, text: bytes) -> list[int]:
        """The tokens that a header names, of a header that is this program's."""
        try:
            header = json.loads(bytes(text))
        except (ValueError, RecursionError):
            raise self._error("its header is no JSON") from None
        if not isinstance(header, dict) or header.keys() != {"program", "tokens", "caches"}:
            raise self._error("its header does not name a program, tokens and caches")
        if header["program"] != self._layout.program:
            raise self._error("the cache of another program, or of other weights")
        if header["caches"] != self._layout.caches():
            raise self._error("its caches are laid out in another way than on this device")
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
