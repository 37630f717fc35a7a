"""The functions behind the commands: each returns a report of dataclasses, which its `text` module prints."""

from collections.abc import Callable
from typing import TypeAlias

# Receives the current activity, the steps done and their total (0: not known).
Progress: TypeAlias = Callable[[str, int, int], None]


def silent(doing: str, done: int, of: int) -> None:
    """The Progress that shows nothing."""
