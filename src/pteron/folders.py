"""Folders outside the package."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where Pteron keeps what it would have to make or fetch again: ~/.cache/pteron, or where PTERON_CACHE
    points."""
    return Path(os.environ.get("PTERON_CACHE") or Path.home() / ".cache" / "pteron")
