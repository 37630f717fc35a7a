"""Whose prompt is read next: one chunk of each in turns, and newcomers early."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from pteron.llm.engine.running import RunningRequest


class PrefillQueue:
    """Prompts that are being prefilled. A prompt with nothing read yet gets every other chunk, so a new
    request waits for one chunk of a long prompt, and a long prompt still advances among many new requests."""

    def __init__(self) -> None:
        self._new: deque[RunningRequest] = deque()
        self._begun: deque[RunningRequest] = deque()
        self._was_new = False  # whose turn it was last

    def __len__(self) -> int:
        return len(self._new) + len(self._begun)

    def add(self, track: RunningRequest) -> None:
        """One of which nothing was read."""
        self._new.append(track)

    def go_on(self, track: RunningRequest) -> None:
        """One that had its turn, and needs more."""
        self._begun.append(track)

    def take(self) -> RunningRequest:
        """The one whose turn it is, which is in none until it is put back."""
        self._was_new = bool(self._new) and not (self._was_new and self._begun)
        return (self._new if self._was_new else self._begun).popleft()

    def drop(self, track: RunningRequest) -> None:
        """One that ends, if it is here."""
        for tracks in (self._new, self._begun):
            with suppress(ValueError):
                tracks.remove(track)
