"""What a generation gives: its pieces, and what it took."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from pteron.llm.submission import Drawn
from pteron.llm.tokenizer import Tokenizer


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


class StopStrings:
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


class TextAssembler:
    """One text: `drawn` are its tokens so far, `reason` is why it ended, once it has.

    Up to `wanted` tokens are told; `room` of them, where the context has no place for more.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], stop_ids: Container[int], wanted: int, room: int
    ) -> None:
        self.drawn: list[int] = []
        self.reason = ""
        self.count = min(wanted, room)
        self._is_short = room < wanted
        self._stop_ids = stop_ids
        self._stream, self._scanner = tokenizer.stream(), StopStrings(stop)

    def push(self, drawn: Drawn, *, is_whole: bool = False) -> list[Piece]:
        """The pieces that a token makes: none, where it ends the text and nothing was held back. Behind one
        that is `whole` by its grammar nothing can follow."""
        self.drawn.append(drawn.token)
        pieces = []
        if drawn.token in self._stop_ids:
            self.reason = "stop"
        else:
            text = self._scanner.push(self._stream.push(drawn.token))
            pieces.append(Piece(drawn.token, text, drawn.logprob, drawn.top))
            if self._scanner.is_stopped or is_whole:
                self.reason = "stop"
            elif len(self.drawn) == self.count:
                self.reason = "context" if self._is_short else "length"
        if self.reason and not self._scanner.is_stopped:
            rest = self._scanner.push(self._stream.finish()) + self._scanner.finish()
            if rest:
                pieces.append(Piece(drawn.token, rest, 0.0))
        return pieces
