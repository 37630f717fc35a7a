"""What an engine has to do, and has done: totals kept by its thread, read by anybody."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from pteron.llm.output import Statistics

_SECONDS = 8  # that the rate is of
_PATIENCE = 1.0, 60.0  # seconds: the least and the most that anybody is told to wait


@dataclass(frozen=True, slots=True)
class Load:
    """An engine at one moment. The second half counts from its start."""

    running: int
    waiting: int
    sequences: int  # that have memory on the GPU, idle ones included
    cache_bytes: int  # of all of them
    slots: int  # of sequences that step together; 0: each by itself, or no two were under way at once
    tokens_per_second: float  # of all answers together, over the last seconds
    requests: int  # that were taken on
    prompt_tokens: int
    reused_tokens: int
    new_tokens: int
    cancelled: int
    failed: int


class Totals:
    """Sums over all requests, written by the engine's thread alone."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.new_tokens = 0
        self.cancelled = 0
        self.failed = 0
        self.request_seconds = 0.0  # that one takes once it is begun, the latest counting most
        self._started = monotonic()
        self._by_second = [(0, 0)] * (_SECONDS + 1)  # (second, tokens), each where its second's turn is

    def began(self, statistics: Statistics) -> None:
        """A request's prompt is read from now on."""
        self.prompt_tokens += statistics.prompt_tokens
        self.reused_tokens += statistics.reused_tokens

    def drew(self, count: int) -> None:
        """So many tokens have arrived."""
        self.new_tokens += count
        now = int(monotonic())
        place = now % len(self._by_second)
        second, tokens = self._by_second[place]
        self._by_second[place] = now, (tokens if second == now else 0) + count

    def ended(self, reason: str, seconds: float | None) -> None:
        """A request ended so, that long after it was begun; None: it never was."""
        self.cancelled += reason == "cancelled"
        self.failed += reason == "error"
        if seconds is not None:
            known = self.request_seconds
            self.request_seconds = known + 0.2 * (seconds - known) if known else seconds

    def rate(self) -> float:
        """Tokens per second lately."""
        now = monotonic()
        lately = sum(tokens for second, tokens in list(self._by_second) if now - second < _SECONDS)
        return lately / max(1.0, min(_SECONDS - 0.5, now - self._started))

    def patience(self, waiting: int, running: int) -> float:
        """Seconds after which so many that wait will have gone, as far as one can tell."""
        least, most = _PATIENCE
        return min(max(least, self.request_seconds * waiting / max(1, running)), most)
