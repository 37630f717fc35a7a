"""Log-probabilities of an answer's tokens, in the two shapes that OpenAI has for them."""

from __future__ import annotations

from typing import Any

from pteron.llm import Piece, Tokenizer

_LEAST = -9999.0  # as OpenAI writes the log-probability of what cannot be


def is_token(piece: Piece) -> bool:
    """Whether a piece is a token with its alternatives, rather than text that was held back to the end."""
    return bool(piece.top)


def chat_entry(tokenizer: Tokenizer, piece: Piece, alternatives: int) -> dict[str, Any]:
    """A token as chats report it."""
    return {
        **_one(tokenizer, piece.token, piece.logprob),
        "top_logprobs": [_one(tokenizer, *pair) for pair in piece.top[:alternatives]],
    }


class CompletionLogprobs:
    """Lists over the tokens of a completion, as its older form has them."""

    def __init__(self, tokenizer: Tokenizer, alternatives: int) -> None:
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._offset = 0
        self.all = self._empty()

    def take(self, piece: Piece) -> dict[str, list[Any]]:
        """What a piece adds."""
        added = self._empty()
        if is_token(piece):
            token = token_text(self._tokenizer, piece.token)
            top: dict[str, float] = {}
            for other, logprob in piece.top[: self._alternatives]:  # of those that read alike, the likeliest
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
    """A token as text: its bytes where they are some, its name where it is a control token."""
    data = tokenizer.token_bytes(token)
    return data.decode("utf-8", "replace") if data else tokenizer.token_text(token)


def _one(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {
        "token": token_text(tokenizer, token),
        "logprob": _finite(logprob),
        "bytes": list(data) if data else None,
    }


def _finite(logprob: float) -> float:
    """What JSON can say: it has no infinity."""
    return logprob if logprob > _LEAST else _LEAST
