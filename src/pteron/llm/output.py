"""The output of a generation: drawn tokens in; pieces of text and statistics out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from pteron.llm.sampling import Drawn
from pteron.llm.tokenizer import Tokenizer


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
    dropped_tokens: int = 0  # the oldest of the prompt, truncated to fit the context
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    stalls: int = 0
    # "stop": a stop id, a stop string or a complete grammar; "length": max_new_tokens; "context": it is full.
    # Answers of an engine have more: `Answer.finish_reason`.
    finish_reason: str = ""

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

    def __str__(self) -> str:
        return self.text


class StopStrings:
    """Withholds text that may be the beginning of a stop string, and no more than that."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._withheld = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """The text that is certain to come before any stop string."""
        self._withheld += text
        found = [at for stop in self._stops if (at := self._withheld.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            safe, self._withheld = self._withheld[: min(found)], ""
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


class RequestOutput:
    """The tokens of a request: `drawn` so far, at most `count`; `reason` is why it ended, once it has.

    `wanted` tokens are requested, and the context has room for `room`. Without a tokenizer there are no
    pieces and no stop ids.
    """

    def __init__(
        self,
        wanted: int,
        room: int,
        tokenizer: Tokenizer | None = None,
        stop: Sequence[str] = (),
        stop_ids: Container[int] = (),
    ) -> None:
        self.drawn: list[int] = []
        self.reason = ""
        self.count = min(wanted, room)
        self._is_short = room < wanted
        self._stop_ids, self._stop_strings = stop_ids, StopStrings(stop)
        self._stream = tokenizer.stream() if tokenizer else None

    def push(self, drawn: Drawn, *, is_whole: bool = False) -> list[Piece]:
        """Add a token; returns the pieces of text that it completes. With `is_whole` it completes a
        grammar."""
        self.drawn.append(drawn.token)
        pieces, strings = list[Piece](), self._stop_strings
        is_stop = drawn.token in self._stop_ids
        if self._stream and not is_stop:
            text = strings.push(self._stream.push(drawn.token))
            pieces.append(Piece(drawn.token, text, drawn.logprob, drawn.top))
        if is_stop or is_whole or strings.is_stopped:
            self.reason = "stop"
        elif len(self.drawn) == self.count:
            self.reason = "context" if self._is_short else "length"
        if self._stream and self.reason and not strings.is_stopped:
            rest = strings.push(self._stream.finish()) + strings.finish()
            if rest:
                pieces.append(Piece(drawn.token, rest, 0.0))
        return pieces
