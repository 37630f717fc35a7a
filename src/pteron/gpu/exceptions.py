"""The exceptions of adapters: parts of a device whose kernels `pteron doctor` found wrong, in files of the
cache. There is one file for each library, adapter and driver; a new driver has none."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pteron.folders import cache_folder, replace_file, writing_to
from pteron.ops.target import PARTS


def exceptions_folder() -> Path:
    """The folder of the files."""
    return cache_folder() / "exceptions"


def exceptions_file(library: str, name: str, backend: str, driver: str) -> Path:
    """The file of an adapter with its driver, as a library has it."""
    key = f"{library}\n{name}\n{backend}\n{driver}"
    return exceptions_folder() / f"{sha256(key.encode()).hexdigest()[:16]}.json"


def read_exceptions(library: str, name: str, backend: str, driver: str) -> tuple[str, ...]:
    """The parts of the adapter that plans leave out. A damaged file counts as none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        content = json.loads(exceptions_file(library, name, backend, driver).read_text("utf-8"))
        return tuple(part for part in PARTS if part in content["without"])
    return ()


def write_exceptions(path: Path, without: tuple[str, ...], about: dict[str, object]) -> None:
    """Write a file; without exceptions, remove it."""
    with writing_to(path.parent):
        if without:
            replace_file(path, json.dumps({"without": without, **about}, indent=1).encode())
        elif path.exists():
            path.unlink()
