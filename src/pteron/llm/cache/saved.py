"""A KV cache as a file: tokens, and their rows in each cache.

    8 bytes   "PTERONkv"
    4         the version; all numbers are little-endian
    4         bytes of the header
              the header, JSON: program (digest), tokens, written (tokens after which rings are as they are),
              caches [[state, bytes of a row, rows of a ring or 0], ...]
              the rows of all tokens, of rings those that are there, cache by cache in this order
    32        SHA-256 of everything before

A file that was damaged on its way has another checksum; the digest of the program says whose cache it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from struct import Struct
from weakref import WeakKeyDictionary

from pteron.errors import FormatError, InputError
from pteron.folders import replacing
from pteron.format.source import pieces, read_file
from pteron.graph.values import tensors
from pteron.llm.cache.layout import Rows
from pteron.llm.cache.sequence import CachedRows
from pteron.llm.model import LanguageModel
from pteron.runtime import Program

_MAGIC, _VERSION = b"PTERONkv", 2
_START = Struct("<8sII")
_DIGEST_BYTES = 32
_STAGING = 1 << 22
_HEADER_BYTES_MAX = 1 << 16, 40  # for the caches, and per token: rows of images have long ids


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a program's caches, which a file must match."""

    program: str  # digest
    caches: list[list[int]]  # a state's id, the bytes of a row, the rows of a ring or 0
    context: int

    @property
    def file_bytes_max(self) -> int:
        fixed, per_token = _HEADER_BYTES_MAX
        return fixed + self.context * (per_token + sum(size for _, size, _ in self.caches))

    def fits(self, caches: list[list[int]], written: int) -> bool:
        """Whether rows of other caches after some tokens are at the same places: they may be rings of another
        size that are not full yet."""

        def rows(ring: int) -> int:
            return ring or written

        pairs = zip(self.caches, caches, strict=True)
        return all(own[2] == other[2] or written <= min(rows(own[2]), rows(other[2])) for own, other in pairs)


def layout_of(model: LanguageModel) -> Layout:
    """The layout of a model's caches. Its program is read and hashed once."""
    program = model.program
    if program not in _digests:
        _digests[program] = _digest(program, model.method.name)
    caches = [[id, rows.bytes, rows.ring] for id, rows in model.check_rows().items()]
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


def write_saved(path: Path, layout: Layout, cached: CachedRows) -> None:
    header = {
        "program": layout.program,
        "tokens": list(cached.tokens),
        "written": cached.written,
        "caches": layout.caches,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = [_START.pack(_MAGIC, _VERSION, len(text)), text, *cached.rows]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    try:
        with replacing(path) as file:
            file.writelines([*parts, digest.digest()])
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path}: the cache cannot be written ({error.strerror or error})") from error


def read_saved(path: Path, layout: Layout) -> CachedRows:
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
    tokens, written, caches = list(header["tokens"]), header["written"], header["caches"]
    if [cache[:2] for cache in caches] != [cache[:2] for cache in layout.caches]:
        raise FormatError(f"{path}: its caches have another element type than these, which cache= chooses")
    if len(tokens) > layout.context:
        raise FormatError(f"{path}: {len(tokens)} tokens exceed the context, which holds {layout.context}")
    if not layout.fits(caches, written):
        raise FormatError(f"{path}: its layers with a window have other rings than these")
    sizes = (Rows(size, ring).held(len(tokens), written) for _, size, ring in caches)
    ends = list(accumulate(sizes, initial=at))
    return CachedRows(tokens, written, [body[start:end] for start, end in pairwise(ends)])
