"""The load of an engine: running totals kept by its thread, snapshots for any thread."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from pteron.llm.output import Statistics

_RATE_SECONDS = 8  # window of the token rate
_RETRY_SECONDS = 1.0, 60.0  # the least and the most that Busy suggests


@dataclass(frozen=True, slots=True)
class Load:
    """A snapshot of an engine. `requests` and the counts after it are totals since its start."""

    running: int
    waiting: int
    sequences: int  # with memory on the GPU, idle ones included
    cache_bytes: int  # of all sequences
    slots: int  # for sequences that step as one batch; 0: each steps alone
    tokens_per_second: float  # of all answers, over the last seconds
    requests: int  # accepted
    prompt_tokens: int
    reused_tokens: int
    new_tokens: int
    cancelled: int
    failed: int
    proposed_tokens: int = 0  # by speculative decoding
    accepted_tokens: int = 0  # of the proposed ones


class Totals:
    """Sums over all requests, written by the engine's thread only."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.new_tokens = 0
        self.cancelled = 0
        self.failed = 0
        self.request_seconds = 0.0  # run time of a request: a moving average
        self._started = monotonic()
        self._by_second = [(0, 0)] * (_RATE_SECONDS + 1)  # (second, tokens), a ring

    def add_started(self, statistics: Statistics) -> None:
        self.prompt_tokens += statistics.prompt_tokens
        self.reused_tokens += statistics.reused_tokens

    def add_tokens(self, count: int) -> None:
        self.new_tokens += count
        now = int(monotonic())
        index = now % len(self._by_second)
        second, tokens = self._by_second[index]
        self._by_second[index] = now, (tokens if second == now else 0) + count

    def add_ended(self, reason: str, seconds: float | None) -> None:
        """Count a request that ran for `seconds`; None: it never started."""
        self.cancelled += reason == "cancelled"
        self.failed += reason == "error"
        if seconds is not None:
            known = self.request_seconds
            self.request_seconds = known + 0.2 * (seconds - known) if known else seconds

    def rate(self) -> float:
        """Tokens per second over the last seconds."""
        now = monotonic()
        recent = sum(tokens for second, tokens in list(self._by_second) if now - second < _RATE_SECONDS)
        return recent / max(1.0, min(_RATE_SECONDS - 0.5, now - self._started))

    def retry_seconds(self, waiting: int, running: int) -> float:
        """The estimated time until `waiting` requests have left the queue."""
        least, most = _RETRY_SECONDS
        return min(max(least, self.request_seconds * waiting / max(1, running)), most)
