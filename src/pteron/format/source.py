"""A path or a block of bytes enters; a read-only view and a name for messages leave.

A small file is read at once. A larger one is mapped, and its views are only references: the file may be
truncated or overwritten while a program is open, and touching a lost page kills the process (SIGBUS). Read
bytes with `contents` and `pieces`. They copy from the file, and raise a FormatError if the file has changed
since. Views of a file elsewhere are references too: the same two functions fetch what they read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, TypeAlias

import numpy as np

from pteron.errors import FormatError, InputError, MissingFileError

_SMALL = 1 << 24  # bytes: up to here, a file is read rather than mapped
_READ_MAX = 1 << 30  # bytes per system call
_COMPARED = 1 << 24  # bytes at a time
# On Windows a mapped file cannot shrink, so the call is neither available nor needed.
_CAN_READ_AT = hasattr(os, "preadv")


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The bytes of a file and what to call it in messages."""

    view: memoryview
    name: str


Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | FileBytes


class _FetchedFile(mmap.mmap):
    """Addresses as many as a file elsewhere has bytes; there is nothing behind them. `fetch` takes an offset
    and a count."""

    fetch: Callable[[int, int], bytes]
    address: int


class _MappedFile(mmap.mmap):
    """A map that knows its file, and what that looked like when it was opened."""

    file: BinaryIO
    name: str
    opened: tuple[int, int]
    address: int


def open_bytes(source: Source, name: str | None = None) -> FileBytes:
    """View `source` without copying it; a small file is read, a large one is mapped."""
    if isinstance(source, FileBytes):
        return source
    try:
        if isinstance(source, bytes | bytearray | memoryview):
            view, name = memoryview(source).cast("B").toreadonly(), name or "<bytes>"
        else:
            path = os.fsdecode(source)
            view, name = _open_path(path), name or path
    except TypeError as error:  # neither, or memory that is not contiguous
        raise InputError(f"a file is given by its path or as bytes: {error}") from None
    if not view:
        raise FormatError(f"{name}: the file is empty")
    return FileBytes(view, name)


def open_fetched(size: int, name: str, fetch: Callable[[int, int], bytes]) -> FileBytes:
    """A file elsewhere. Only `contents` and `pieces` read it: in a view itself are no bytes."""
    if hasattr(mmap, "MAP_PRIVATE"):  # and read-only: no memory is reserved, however large the file
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        addresses = _FetchedFile(-1, size, flags=flags, prot=mmap.PROT_READ)
    else:  # Windows
        addresses = _FetchedFile(-1, size)
    view = memoryview(addresses).toreadonly()
    addresses.fetch, addresses.address = fetch, _address(view)
    return FileBytes(view, name)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A file opened for reading. Pipes and devices are refused before they are opened, which could block."""
    path = os.fspath(path)
    try:
        kind = os.stat(path).st_mode
        if S_ISREG(kind):
            return open(path, "rb", buffering=0)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: the file cannot be read ({error})") from error
    what = "a directory, not a file" if S_ISDIR(kind) else "not a regular file"
    raise FormatError(f"{path}: this is {what}")


def read_file(path: str | os.PathLike[str], size_max: int) -> bytes:
    """The content of a file of at most `size_max` bytes."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > size_max:
            raise FormatError(
                f"{os.fspath(path)}: {size:,} bytes; at most {size_max:,} are read of such a file"
            )
        try:
            return file.read(size)
        except OSError as error:
            raise FormatError(f"{os.fspath(path)}: the file cannot be read ({error})") from error


def contents(view: memoryview, staging: memoryview | None = None) -> memoryview:
    """The bytes of a view: the view itself if it is memory, a copy if it refers to a mapped file.

    The copy is in `staging` if that is large enough, until the next read into it. FormatError if the file's
    size or modification time has changed: the bytes could be of two versions."""
    mapped = view.obj
    if isinstance(mapped, _FetchedFile) and view:
        return memoryview(mapped.fetch(_address(view) - mapped.address, len(view)))
    if not isinstance(mapped, _MappedFile) or not _CAN_READ_AT or not view:
        return view
    if staging is None or len(staging) < len(view):
        staging = np.empty(len(view), np.uint8).data
    copy = staging[: len(view)]
    read_into(copy, mapped, _address(view) - mapped.address)
    return copy.toreadonly()


def pieces(view: memoryview, staging: memoryview) -> Iterator[memoryview]:
    """The same in pieces, each at most as large as `staging`, which is faster than new memory."""
    for start in range(0, len(view), len(staging)):
        yield contents(view[start : start + len(staging)], staging)


def read_into(memory: memoryview, mapped: _MappedFile, offset: int) -> None:
    """Fill memory with bytes at an offset of a file, which must not have changed."""
    unread = memory
    try:
        while unread:
            read = os.preadv(mapped.file.fileno(), [unread[:_READ_MAX]], offset)
            if read == 0:
                break
            unread, offset = unread[read:], offset + read
    except OSError as error:
        raise FormatError(f"{mapped.name}: the file cannot be read ({error})") from error
    if unread or _look(mapped.file) != mapped.opened:
        raise FormatError(f"{mapped.name} changed since it was loaded: load it again")


def is_same(a: memoryview, b: memoryview) -> bool:
    """Whether two views hold the same bytes. Nothing is read if both are the same memory."""
    if len(a) != len(b) or _address(a) == _address(b):
        return len(a) == len(b)
    chunks = (slice(start, start + _COMPARED) for start in range(0, len(a), _COMPARED))
    return all(bytes(contents(a[chunk])) == bytes(contents(b[chunk])) for chunk in chunks)


def _open_path(path: str) -> memoryview:
    with open_file(path) as file:
        opened = _look(file)
        try:
            if opened[0] <= _SMALL:  # at most its size: some files of /proc are endless
                return memoryview(file.read(opened[0]) or b"")
            mapped = _MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)
        except (OSError, ValueError) as error:
            raise FormatError(f"{path}: the file cannot be read ({error})") from error
    mapped.name, mapped.opened = path, opened
    view = memoryview(mapped)
    mapped.address = _address(view)
    return view


def _look(file: BinaryIO) -> tuple[int, int]:
    """The size of a file, and its modification time in nanoseconds."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _address(view: memoryview) -> int:
    """The address of a view; its bytes are not read."""
    return int(np.frombuffer(view, np.uint8).ctypes.data) if view else 0
