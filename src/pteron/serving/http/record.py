"""What is known of a request while it lasts: for its log line, and for the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

KEY = "pteron.record"  # of a request's scope


@dataclass(slots=True)
class Record:
    """One request. Seconds are since it arrived."""

    id: str
    method: str
    arrived: float = field(default_factory=time.perf_counter)
    route: str = "other"
    status: int = 0
    model: str | None = None
    is_streamed: bool = False
    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    choices: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    first_token_seconds: float | None = None
    is_abandoned: bool = False  # the client left before the end
    error: str | None = None
    prompt: Any = None  # where a server is told to log it
    answer: list[str] | None = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.arrived
