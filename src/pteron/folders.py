"""Folders outside the package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as shortened

from pteron.errors import PteronError


def cache_folder() -> Path:
    """Where Pteron keeps what it would have to make or fetch again: ~/.cache/pteron, or where PTERON_CACHE
    points."""
    return Path(os.environ.get("PTERON_CACHE") or Path.home() / ".cache" / "pteron")


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Say which folder it is that cannot be written to: on a full disk, somebody else's, or none at all."""
    try:
        yield
    except (OSError, ValueError) as error:  # the latter of names that no system takes
        raise PteronError(f"{shortened(str(folder))} cannot be written to: {error}") from error
