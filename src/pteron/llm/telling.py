"""Tokens as they are drawn -> pieces of a text, up to where it ends and why it does."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pteron.llm.launching import Drawn
from pteron.llm.pieces import Piece
from pteron.llm.stopping import StopScanner
from pteron.llm.tokenizer import Tokenizer


class Telling:
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
        self._stream, self._scanner = tokenizer.stream(), StopScanner(stop)

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
