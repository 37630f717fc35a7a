"""Stop strings: text passes through until one appears, even where it straddles tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """Holds back text that may be the beginning of a stop string, and no more than that."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """The text that is certain to come before any stop string."""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            safe, self._held = self._held[: min(found)], ""
            return safe
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        safe = self._held[: len(self._held) - keep]
        self._held = self._held[len(safe) :]
        return safe

    def finish(self) -> str:
        """What was held back, once nothing more will come."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if stop.startswith(text[-size:])), 0)
