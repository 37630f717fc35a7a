"""Whose prompt is read next: one chunk of each in turns, and newcomers early."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from pteron.llm.engine.track import Track


class Prompts:
    """Prompts that are not read to their end. Those of which nothing was read yet have every other turn, so
    that a newcomer waits for one chunk of a long prompt, and a long prompt comes on among many newcomers."""

    def __init__(self) -> None:
        self._new: deque[Track] = deque()
        self._begun: deque[Track] = deque()
        self._was_new = False  # whose turn it was last

    def __len__(self) -> int:
        return len(self._new) + len(self._begun)

    def add(self, track: Track) -> None:
        """One of which nothing was read."""
        self._new.append(track)

    def go_on(self, track: Track) -> None:
        """One that had its turn, and needs more."""
        self._begun.append(track)

    def take(self) -> Track:
        """The one whose turn it is, which is in none until it is put back."""
        self._was_new = bool(self._new) and not (self._was_new and self._begun)
        return (self._new if self._was_new else self._begun).popleft()

    def drop(self, track: Track) -> None:
        """One that ends, if it is here."""
        for tracks in (self._new, self._begun):
            with suppress(ValueError):
                tracks.remove(track)
