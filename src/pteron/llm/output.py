"""The output of a generation: pieces of text, and statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import Repr

_shortened = Repr()
_shortened.maxstring = 60


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a generation: the text it completed (empty while a character or a stop string is
    incomplete), its log-probability, and with `top_logprobs` the likeliest tokens with theirs."""

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Statistics:
    """Counts and times of a generation. Seconds are wall time; those of the prompt end at the first token."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, found in the KV cache
    read_tokens: int = 0  # of the prompt, so far: it is read in chunks
    dropped_tokens: int = 0  # the oldest of the prompt, truncated to fit the context
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    stalls: int = 0
    proposed_tokens: int = 0  # by speculative decoding
    accepted_tokens: int = 0  # of the proposed ones
    # "stop": a stop id, a stop string or a complete grammar; "length": max_new_tokens; "context": it is full.
    # Answers of an engine have more: `Answer.finish_reason`.
    finish_reason: str = ""
    stop_string: str = ""  # the stop string that ended the text, if one did
    queue_seconds: float = 0.0  # in an engine's queue, before the prompt's seconds

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second, without reused ones."""
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete generated text."""

    text: str
    pieces: tuple[Piece, ...]
    statistics: Statistics

    @classmethod
    def of(cls, pieces: Iterable[Piece], statistics: Statistics) -> Completion:
        listed = tuple(pieces)
        return cls("".join(piece.text for piece in listed), listed, statistics)

    def __repr__(self) -> str:
        took = self.statistics
        counts = f"{took.prompt_tokens} + {took.new_tokens} tokens"
        return f"<pteron.llm.Completion {_shortened.repr(self.text)}, {counts}, {took.finish_reason}>"

    def __str__(self) -> str:
        return self.text


class StopStrings:
    """Withholds text that may be the beginning of a stop string, and no more than that."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._withheld = ""
        self.found = ""  # the stop string that ended the text

    @property
    def is_stopped(self) -> bool:
        return bool(self.found)

    def push(self, text: str) -> str:
        """The text that is certain to come before any stop string."""
        self._withheld += text
        found = [(at, stop) for stop in self._stops if (at := self._withheld.find(stop)) >= 0]
        if found:
            at, self.found = min(found)
            safe, self._withheld = self._withheld[:at], ""
            return safe
        keep = max((_overlap(self._withheld, stop) for stop in self._stops), default=0)
        safe = self._withheld[: len(self._withheld) - keep]
        self._withheld = self._withheld[len(safe) :]
        return safe

    def finish(self) -> str:
        """The withheld text, at the end of the output."""
        rest, self._withheld = self._withheld, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if stop.startswith(text[-size:])), 0)
