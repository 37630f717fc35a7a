"""A KV cache as a file: tokens, and their rows in each cache.

    8 bytes   "PTERONkv"
    4         the version; all numbers are little-endian
    4         bytes of the header
              the header, JSON: program (digest), tokens, caches [[state, bytes of a row], ...]
              the rows of all tokens, cache by cache in this order
    32        SHA-256 of everything before

Files are not trusted. The program and its context determine the largest file, which is checked before memory
is allocated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from secrets import token_hex
from struct import Struct
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError
from pteron.format.source import pieces, read_file
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

    def file_bytes_max(self) -> int:
        header = _HEADER_BYTES + _BYTES_PER_NUMBER * (self.context + 3 * len(self.row_bytes))
        return _START.size + header + self.context * sum(self.row_bytes.values()) + _DIGEST_BYTES

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
    header = {"program": layout.program, "tokens": list(tokens), "caches": layout.caches()}
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = [_START.pack(_MAGIC, _VERSION, len(text)), text, *rows]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            file.writelines([*parts, digest.digest()])
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InputError(f"{path}: the cache cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # already renamed, unless an error occurred
            unfinished.unlink()


def read_saved(path: Path, layout: Layout) -> tuple[list[int], list[Rows]]:
    """The tokens of a file, and their rows in each cache."""
    data = memoryview(read_file(path, layout.file_bytes_max()))
    try:
        return _parse(data, layout)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _parse(data: memoryview, layout: Layout) -> tuple[list[int], list[Rows]]:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) < _START.size + _DIGEST_BYTES:
        raise FormatError(f"{len(data)} bytes are too few for a saved KV cache")
    magic, version, length = _START.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError("not a KV cache written by llm.save")
    if version != _VERSION:
        raise FormatError(f"version {version}; this Pteron reads version {_VERSION}")
    at = _START.size + length
    if at > len(body):
        raise FormatError(f"a header of {length:,} bytes, in a file of {len(data):,}")
    tokens = _tokens(bytes(body[_START.size : at]), layout)
    sizes = [len(tokens) * each for each in layout.row_bytes.values()]
    expected = at + sum(sizes) + _DIGEST_BYTES
    if len(data) != expected:
        raise FormatError(f"{len(data):,} bytes; {len(tokens)} tokens of this program take {expected:,}")
    if hashlib.sha256(body).digest() != digest:
        raise FormatError("the file is damaged: its checksum does not match")
    starts = accumulate(sizes, initial=at)
    return tokens, [
        np.frombuffer(body[start : start + size], np.uint8)
        for start, size in zip(starts, sizes, strict=False)
    ]


def _tokens(text: bytes, layout: Layout) -> list[int]:
    """The tokens of a header that matches this program."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError("its header is not JSON") from None
    if not isinstance(header, dict) or header.keys() != {"program", "tokens", "caches"}:
        raise FormatError("its header does not name a program, tokens and caches")
    if header["program"] != layout.program:
        raise FormatError("a cache of another program, or of other weights")
    if header["caches"] != layout.caches():
        raise FormatError("its cache layout differs from this device's")
    tokens = header["tokens"]
    are_ids = isinstance(tokens, list) and all(
        type(token) is int and 0 <= token < layout.vocabulary for token in tokens
    )
    if not are_ids or not 0 < len(tokens) <= layout.context:
        raise FormatError(f"its tokens are not 1 to {layout.context:,} numbers below {layout.vocabulary:,}")
    return list(tokens)
