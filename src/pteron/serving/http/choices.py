"""ChatChoice, CompletionChoice: the pieces of one answer -> its part of a response, in OpenAI's two formats.

The parts of a stream lack what all chunks share (responses.py). `alternatives` is the number of tokens whose
log-probabilities are reported at each place; None: no log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pteron.llm import Piece, Tokenizer
from pteron.serving.http.tool_calls import ToolCall, ToolCallParser

_LEAST = -9999.0  # OpenAI's log-probability of a token that is impossible; JSON has no infinity


class ChatChoice:
    """One answer: its text, its tool calls, its log-probabilities."""

    def __init__(
        self, parser: ToolCallParser | None, tokenizer: Tokenizer, alternatives: int | None, *, one_call: bool
    ) -> None:
        self._parser = parser
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._calls_max = 1 if one_call else None
        self.content = ""
        self.calls: list[ToolCall] = []
        self.logprobs: list[dict[str, Any]] = []
        self.reason: str | None = None

    def opening(self) -> Iterator[dict[str, Any]]:
        """The parts of a stream before the first piece."""
        yield {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The parts of a stream for the next piece."""
        text, calls = self._parser.push(piece.text) if self._parser else (piece.text, [])
        entries = []
        if self._alternatives is not None and _is_token(piece):
            top = [self._entry(*pair) for pair in piece.top[: self._alternatives]]
            entries = [{**self._entry(piece.token, piece.logprob), "top_logprobs": top}]
            self.logprobs += entries
        if text or entries:
            self.content += text
            yield {"delta": {"content": text}, "logprobs": self._logprobs_field(entries)}
        yield from self._call_deltas(calls)

    def end(self, reason: str) -> Iterator[dict[str, Any]]:
        """The last parts of a stream."""
        text, calls = self._parser.finish() if self._parser else ("", [])
        if text:
            self.content += text
            yield {"delta": {"content": text}, "logprobs": None}
        yield from self._call_deltas(calls)
        self.reason = "tool_calls" if self.calls and reason == "stop" else reason
        yield {"delta": {}, "logprobs": None, "finish_reason": self.reason}

    def body(self) -> dict[str, Any]:
        """The whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content, "refusal": None}
        if self.calls:
            message["content"] = self.content.strip() or None
            message["tool_calls"] = [call.json for call in self.calls]
        logprobs = self._logprobs_field(self.logprobs)
        return {"message": message, "logprobs": logprobs, "finish_reason": self.reason}

    def _logprobs_field(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return None if self._alternatives is None else {"content": entries, "refusal": None}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(token)
        entry = {"token": _token_text(self._tokenizer, token), "logprob": max(_LEAST, logprob)}
        return {**entry, "bytes": list(data) if data else None}

    def _call_deltas(self, calls: list[ToolCall]) -> Iterator[dict[str, Any]]:
        """Two deltas per call, which clients join: its name, then its arguments."""
        for call in calls[: None if self._calls_max is None else self._calls_max - len(self.calls)]:
            index = len(self.calls)
            self.calls.append(call)
            named = call.json | {"index": index, "function": {"name": call.name, "arguments": ""}}
            yield {"delta": {"tool_calls": [named]}, "logprobs": None}
            arguments = {"index": index, "function": {"arguments": call.arguments}}
            yield {"delta": {"tool_calls": [arguments]}, "logprobs": None}


class CompletionChoice:
    """One answer: its text and its log-probabilities, which are parallel lists."""

    def __init__(self, tokenizer: Tokenizer, alternatives: int | None) -> None:
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._offset = 0  # of the next token, in characters of the tokens before
        self.content = ""
        self.logprobs = None if alternatives is None else _empty_lists()
        self.reason: str | None = None

    def opening(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        self.content += piece.text
        added = self._add_logprobs(piece)
        if piece.text or (added and added["tokens"]):
            yield {"text": piece.text, "logprobs": added}

    def end(self, reason: str) -> Iterator[dict[str, Any]]:
        self.reason = reason
        yield {"text": "", "logprobs": None, "finish_reason": reason}

    def body(self) -> dict[str, Any]:
        return {"text": self.content, "logprobs": self.logprobs, "finish_reason": self.reason}

    def _add_logprobs(self, piece: Piece) -> dict[str, list[Any]] | None:
        """The lists of this piece alone."""
        if self.logprobs is None:
            return None
        added = _empty_lists()
        if _is_token(piece):
            token = _token_text(self._tokenizer, piece.token)
            top: dict[str, float] = {}
            for other, logprob in piece.top[: self._alternatives]:  # of equal texts the most likely is kept
                top.setdefault(_token_text(self._tokenizer, other), max(_LEAST, logprob))
            values = (token, max(_LEAST, piece.logprob), top if self._alternatives else None, self._offset)
            for name, value in zip(added, values, strict=True):
                added[name].append(value)
                self.logprobs[name].append(value)
            self._offset += len(token)
        return added


Choice: TypeAlias = ChatChoice | CompletionChoice


def _is_token(piece: Piece) -> bool:
    """Whether a piece is a token with alternatives; text that was held back to the end has none."""
    return bool(piece.top)


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; the name of a control token, which has no text."""
    data = tokenizer.token_bytes(token)
    return data.decode("utf-8", "replace") if data else tokenizer.token_text(token)


def _empty_lists() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
