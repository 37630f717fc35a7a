"""A path or a block of bytes enters; a read-only view and a name for messages leave.

A small file is read at once. A larger one is mapped, and its views are places in it, not memory to look at:
the file may be cut short or written over while a program is open, and who then touches a page of the map
is ended by a signal. `contents` and `pieces` are how its bytes are read. They copy them out of the file and
raise a FormatError where the file is no longer the one that was opened.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import numpy as np

from pteron.errors import FormatError, InputError, MissingFileError

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview

_SMALL = 1 << 24  # bytes: up to here, a file is read rather than mapped
_READ_MAX = 1 << 30  # bytes that one system call is asked for
_COMPARED = 1 << 24  # bytes at a time
# Where a map does not let its file shrink, as on Windows, there is no such call, nor need of one.
_CAN_READ_AT = hasattr(os, "preadv")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The bytes of a file and what to call it in messages."""

    view: memoryview
    name: str


class _MappedFile(mmap.mmap):
    """A map that knows its file, and what that looked like when it was opened."""

    file: BinaryIO
    name: str
    opened: tuple[int, int]
    address: int


def open_bytes(source: Source, name: str | None = None) -> FileBytes:
    """View `source` without copying it; a path is read where it is small, and mapped elsewhere."""
    try:
        if isinstance(source, bytes | bytearray | memoryview):
            view, name = memoryview(source).cast("B").toreadonly(), name or "<bytes>"
        else:
            path = os.fsdecode(source)
            view, name = _open_path(path), name or path
    except TypeError as error:  # neither, or memory that is not one byte after the other
        raise InputError(f"a file is given by its path or as bytes: {error}") from None
    if not view:
        raise FormatError(f"{name}: the file is empty")
    return FileBytes(view, name)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A file opened for reading. Pipes, devices and directories are refused, without waiting for anybody."""
    path = os.fspath(path)
    try:
        # Opening a pipe would wait for whoever writes to it.
        file = open(path, "rb", buffering=0, opener=_open_without_waiting)  # noqa: SIM115  # the caller's
        kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise FormatError(f"{path}: this is a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: the file cannot be read ({error})") from error
    if kind != stat.S_IFREG:
        file.close()
        raise FormatError(f"{path}: this is {_KINDS.get(kind, 'something else')}, not a file")
    return file


def read_file(path: str | os.PathLike[str], size_max: int) -> bytes:
    """All of a file of at most so many bytes."""
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
    """The bytes at a view: itself where it is memory, a copy where it is a place in a mapped file.

    The copy lies in `staging` where that is large enough, until something else is read there.
    FormatError where the file's size or time of change is not what it was: bytes may be of two files then.
    """
    mapped = view.obj
    if not isinstance(mapped, _MappedFile) or not _CAN_READ_AT or not view:
        return view
    if staging is None or len(staging) < len(view):
        staging = np.empty(len(view), np.uint8).data
    copy = staging[: len(view)]
    read_into(copy, mapped, _address(view) - mapped.address)
    return copy.toreadonly()


def pieces(view: memoryview, staging: memoryview) -> Iterator[memoryview]:
    """The same piece by piece, each at most as large as `staging`, which costs less than new memory does."""
    for start in range(0, len(view), len(staging)):
        yield contents(view[start : start + len(staging)], staging)


def read_into(memory: memoryview, mapped: _MappedFile, offset: int) -> None:
    """Fill memory with what lies at an offset in a file, which must be the one that was opened."""
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
    """Whether two views hold the same bytes. Nothing is read where they are the same place."""
    if len(a) != len(b) or _address(a) == _address(b):
        return len(a) == len(b)
    chunks = (slice(start, start + _COMPARED) for start in range(0, len(a), _COMPARED))
    return all(bytes(contents(a[chunk])) == bytes(contents(b[chunk])) for chunk in chunks)


def _open_path(path: str) -> memoryview:
    with open_file(path) as file:
        opened = _look(file)
        try:
            if opened[0] <= _SMALL:  # and no more than its size: some files of /proc have no end
                return memoryview(file.read(opened[0]) or b"")
            mapped = _MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)
        except (OSError, ValueError) as error:
            raise FormatError(f"{path}: the file cannot be read ({error})") from error
    mapped.name, mapped.opened = path, opened
    view = memoryview(mapped)
    mapped.address = _address(view)
    return view


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _look(file: BinaryIO) -> tuple[int, int]:
    """What changes with a file's bytes: its size, and the time of the last change in nanoseconds."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _address(view: memoryview) -> int:
    """Where a view begins; nothing of it is looked at."""
    return int(np.frombuffer(view, np.uint8).ctypes.data) if view else 0
