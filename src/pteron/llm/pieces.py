"""What a generation gives: its pieces, and what it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a generation: the text it completed (none, where a character or a stop string is still
    open), its log-probability, and with `top_logprobs` the likeliest tokens with theirs."""

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Statistics:
    """What a generation took. Seconds are wall time; the prompt's end at the first token."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, whose cache was still there
    dropped_tokens: int = 0  # the oldest of the prompt, for which the context had no room
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    stalls: int = 0
    # "stop": a stop id or string, or a grammar's end; "length": max_new_tokens; "context": no room left. An
    # engine's answers have more: `Answer.finish_reason`.
    finish_reason: str = ""

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second, those that had to be read."""
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that was generated, as a whole."""

    text: str
    pieces: tuple[Piece, ...]
    statistics: Statistics

    @classmethod
    def of(cls, pieces: Iterable[Piece], statistics: Statistics) -> Completion:
        listed = tuple(pieces)
        return cls("".join(piece.text for piece in listed), listed, statistics)

    def __str__(self) -> str:
        return self.text
