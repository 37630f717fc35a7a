"""Log-probabilities of an answer's tokens, in OpenAI's two formats."""

from __future__ import annotations

from typing import Any

from pteron.llm import Piece, Tokenizer

_LEAST = -9999.0  # OpenAI's value for a token that is impossible


def is_token(piece: Piece) -> bool:
    """Whether a piece is a token with alternatives; text that was held back to the end has none."""
    return bool(piece.top)


def chat_entry(tokenizer: Tokenizer, piece: Piece, alternatives: int) -> dict[str, Any]:
    """A token in the format of chat completions."""
    return {
        **_entry(tokenizer, piece.token, piece.logprob),
        "top_logprobs": [_entry(tokenizer, *pair) for pair in piece.top[:alternatives]],
    }


class CompletionLogprobs:
    """The tokens of an answer in the format of completions: parallel lists."""

    def __init__(self, tokenizer: Tokenizer, alternatives: int) -> None:
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._offset = 0
        self.all = self._empty()

    def add(self, piece: Piece) -> dict[str, list[Any]]:
        """The lists of this piece alone."""
        added = self._empty()
        if is_token(piece):
            token = token_text(self._tokenizer, piece.token)
            top: dict[str, float] = {}
            for other, logprob in piece.top[: self._alternatives]:  # of equal texts the most likely is kept
                top.setdefault(token_text(self._tokenizer, other), _finite(logprob))
            values = (token, _finite(piece.logprob), top if self._alternatives else None, self._offset)
            for name, value in zip(added, values, strict=True):
                added[name].append(value)
                self.all[name].append(value)
            self._offset += len(token)
        return added

    def _empty(self) -> dict[str, list[Any]]:
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; the name of a control token, which has no text."""
    data = tokenizer.token_bytes(token)
    return data.decode("utf-8", "replace") if data else tokenizer.token_text(token)


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {
        "token": token_text(tokenizer, token),
        "logprob": _finite(logprob),
        "bytes": list(data) if data else None,
    }


def _finite(logprob: float) -> float:
    """JSON has no infinity."""
    return logprob if logprob > _LEAST else _LEAST
