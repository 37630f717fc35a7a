"""A path or a block of bytes enters; a read-only view and a name for messages leave.

Files are mapped, not read: a page costs memory only once something looks at it.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import TypeAlias

from pteron.errors import FormatError

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The bytes of a file and what to call it in messages."""

    view: memoryview
    name: str


def open_bytes(source: Source, name: str | None = None) -> FileBytes:
    """View `source` without copying it; a path is mapped into memory."""
    if isinstance(source, bytes | bytearray | memoryview):
        view, name = memoryview(source).cast("B").toreadonly(), name or "<bytes>"
    else:
        path = os.fspath(source)
        view, name = _map_file(path), name or path
    if not view:
        raise FormatError(f"{name}: the file is empty")
    return FileBytes(view, name)


def _map_file(path: str) -> memoryview:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise FormatError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise FormatError(f"{path}: this is a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: the file cannot be read ({error})") from error
