"""How far something long has come, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# What is being done, how many of its steps are done, and of how many (0: nobody knows).
Progress: TypeAlias = Callable[[str, int, int], None]


def silent(doing: str, done: int, of: int) -> None:
    """Tells nobody."""
