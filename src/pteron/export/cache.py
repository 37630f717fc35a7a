"""Lowered programs on disk, found by what they were made from.

The folder is `compiled` in the one for all caches (`pteron.folders`). An entry is one file,
KEY-CHECKSUM.pte: the key says what it was made from, the checksum what it must contain, so a damaged entry is
noticed and made anew. Beyond BYTES_MAX those go that were not used for longest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

from pteron.folders import cache_folder

BYTES_MAX = 8_000_000_000
_DIGITS = 32  # of a checksum, in an entry's name


def programs_folder() -> Path:
    """Where lowered programs are kept."""
    return cache_folder() / "compiled"


def find(key: str) -> Path | None:
    """The undamaged entry of a key; damaged ones are removed."""
    for path in sorted(programs_folder().glob(f"{key}-*.pte")):
        with contextlib.suppress(OSError):
            if path.stem.removeprefix(f"{key}-") == _checksum_of(path):
                with contextlib.suppress(OSError):  # a file of another user's
                    # Used now, and not changed: whoever has it open looks at the time of its last change.
                    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
                return path
        remove(path)
    return None


def keep(key: str, program: bytes) -> Path | None:
    """Write an entry, whole or not at all; None where the folder cannot be written to."""
    folder = programs_folder()
    path = folder / f"{key}-{hashlib.sha256(program).hexdigest()[:_DIGITS]}.pte"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
            try:
                file.write(program)
                file.close()
                Path(file.name).replace(path)
            except BaseException:
                file.close()
                remove(Path(file.name))
                raise
    except OSError:
        return None
    _forget_oldest(folder, path)
    return path


def _checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]


def _forget_oldest(folder: Path, kept: Path) -> None:
    """Remove entries until the rest fits; the one just written stays whatever its size."""
    used = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may have removed it
            state = path.stat()
            used.append((state.st_atime, state.st_size, path))
    total = sum(size for _, size, _ in used)
    for _, size, path in sorted(used):
        if total <= BYTES_MAX:
            break
        if path != kept:
            remove(path)
            total -= size


def remove(path: Path) -> None:
    """Remove an entry, if that can be done."""
    with contextlib.suppress(OSError):  # gone already, mapped, or in a read-only folder
        path.unlink()
