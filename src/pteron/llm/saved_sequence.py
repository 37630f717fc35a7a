"""A KV cache as a file: tokens, and their rows in each cache.

    8 bytes   "PTERONkv"
    4         the version; all numbers are little-endian
    4         bytes of the header
              the header, JSON: program (digest), tokens, caches [[state, bytes of a row], ...]
              the rows of all tokens, cache by cache in this order
    32        SHA-256 of everything before

A file that was damaged on its way has another checksum; the digest of the program says whose cache it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
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
_HEADER_BYTES_MAX = 1 << 16, 16  # for the caches, and per token

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a program's caches, which a file must match."""

    program: str  # digest
    caches: list[list[int]]  # pairs of a state's id and the bytes of a row
    context: int

    @property
    def file_bytes_max(self) -> int:
        fixed, per_token = _HEADER_BYTES_MAX
        return fixed + self.context * (per_token + sum(size for _, size in self.caches))


def layout_of(model: LanguageModel) -> Layout:
    """The layout of a model's caches. Its program is read and hashed once."""
    program = model.program
    if program not in _digests:
        _digests[program] = _digest(program, model.method.name)
    caches = [[id, size] for id, size in model.check_rows().items()]
    return Layout(_digests[program], caches, model.context)


_digests: WeakKeyDictionary[Program, str] = WeakKeyDictionary()


def _digest(program: Program, method: str) -> str:
    """SHA-256 of a method's graphs and weights."""
    found = hashlib.sha256()
    staging = memoryview(bytearray(_STAGING))
    (record,) = (record for record in program.file.methods if record.name == method)
    for delegate in record.delegates:
        _add(found, delegate.blob, staging)
    for graph in program.graphs(method, stored=True):
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
    header = {"program": layout.program, "tokens": list(tokens), "caches": layout.caches}
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
    data = read_file(path, layout.file_bytes_max)
    if not data.startswith(_MAGIC):
        raise FormatError(f"{path}: not a KV cache written by llm.save")
    body = memoryview(data)[:-_DIGEST_BYTES]
    if len(body) < _START.size or hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
        raise FormatError(f"{path}: the file is damaged: its checksum does not match")
    _, version, length = _START.unpack_from(body)
    if version != _VERSION:
        raise FormatError(f"{path}: version {version}; this Pteron reads version {_VERSION}")
    at = _START.size + length
    header = json.loads(bytes(body[_START.size : at]))
    if header["program"] != layout.program:
        raise FormatError(f"{path}: a cache of another program, or of other weights")
    if header["caches"] != layout.caches:
        raise FormatError(f"{path}: its caches have another element type than these")
    tokens = list(header["tokens"])
    if len(tokens) > layout.context:
        raise FormatError(f"{path}: {len(tokens)} tokens exceed the context, which holds {layout.context}")
    ends = list(accumulate((len(tokens) * size for _, size in layout.caches), initial=at))
    return tokens, [np.frombuffer(body[start:end], np.uint8) for start, end in pairwise(ends)]
