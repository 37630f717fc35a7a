"""Folders outside the package, and paths that callers give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from reprlib import repr as shortened
from typing import BinaryIO

from pteron.errors import InputError, PteronError
from pteron.system import IS_WINDOWS, move

_NOWHERE = Path(os.devnull, "pteron")  # nothing can be read or written below it
_SHOWN_MAX = 300  # characters of a path in a message


def path_of(given: object) -> Path:
    """A path, whether or not it exists."""
    if given == "":  # which `Path` takes for the current folder
        raise InputError("a path, or a model's name, must not be empty")
    try:
        return Path(given)  # type: ignore[arg-type]  # raises TypeError
    except TypeError:
        raise InputError(f"a path must be a string or an os.PathLike, not {shortened(given)}") from None


def existing(given: object) -> Path:
    path = path_of(given)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return path


def cache_folder() -> Path:
    """The cache: PTERON_CACHE, or ~/.cache/pteron. For a user without a home, as in containers, a path that
    is like a cache that is empty and cannot be written to."""
    given = os.environ.get("PTERON_CACHE")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache" / "pteron"
    except RuntimeError:  # no HOME, and the system does not know the user
        return _NOWHERE


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` at the end, in one step: other processes see the old content or
    the new one. An error leaves the old one, and no partial file."""
    unfinished = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        with unfinished.open("xb") as file:
            yield file
        move(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn an OSError into a PteronError that names the folder."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: an invalid path
        if folder.is_relative_to(_NOWHERE):
            raise PteronError("there is no home folder for the cache: set PTERON_CACHE to a folder") from None
        is_open = IS_WINDOWS and isinstance(error, PermissionError)
        hint = "; a program that has a file of it open must end first" if is_open else ""
        if folder.is_relative_to(cache_folder()):
            hint += "; PTERON_CACHE names another folder for the cache"
        raise PteronError(f"{str(folder)[:_SHOWN_MAX]} cannot be written to: {error}{hint}") from error


@contextmanager
def new_folder(folder: Path, marker: str) -> Iterator[Path]:
    """The path of a folder to make, which becomes `folder` at the end. An error leaves no incomplete folder.
    If another process has finished first, so that `folder` has the file `marker`, that one stays."""
    import shutil
    import tempfile  # here: commands that make no folder start faster

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        made = Path(temporary) / folder.name
        yield made
        if not (folder / marker).exists():
            shutil.rmtree(folder, ignore_errors=True)
            move(made, folder)
