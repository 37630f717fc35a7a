"""ChatChoice: the pieces of one answer -> its part of a chat completion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.llm import Piece, Tokenizer
from pteron.serving.http.logprobs import chat_entry, is_token
from pteron.serving.http.tool_calls import ToolCall, ToolCallParser


class ChatChoice:
    """One answer: its text, its tool calls, its log-probabilities (`alternatives` is None: without them)."""

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
        yield {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The deltas of a piece, each with its log-probabilities."""
        text, calls = self._parser.push(piece.text) if self._parser else (piece.text, [])
        entries = []
        if self._alternatives is not None and is_token(piece):
            entries = [chat_entry(self._tokenizer, piece, self._alternatives)]
            self.logprobs += entries
        if text or entries:
            self.content += text
            yield {"delta": {"content": text}, "logprobs": self._logprobs_field(entries)}
        yield from self._call_deltas(calls)

    def end(self, reason: str) -> Iterator[dict[str, Any]]:
        text, calls = self._parser.finish() if self._parser else ("", [])
        if text:
            self.content += text
            yield {"delta": {"content": text}, "logprobs": None}
        yield from self._call_deltas(calls)
        self.reason = "tool_calls" if self.calls and reason == "stop" else reason
        yield {"delta": {}, "logprobs": None, "finish_reason": self.reason}

    def body(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content, "refusal": None}
        if self.calls:
            message["content"] = self.content.strip() or None
            message["tool_calls"] = [call.json for call in self.calls]
        return {
            "message": message,
            "logprobs": self._logprobs_field(self.logprobs),
            "finish_reason": self.reason,
        }

    def _logprobs_field(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return None if self._alternatives is None else {"content": entries, "refusal": None}

    def _call_deltas(self, calls: list[ToolCall]) -> Iterator[dict[str, Any]]:
        """Two deltas per call, which clients join: its name, then its arguments."""
        for call in calls[: None if self._calls_max is None else self._calls_max - len(self.calls)]:
            index = len(self.calls)
            self.calls.append(call)
            named = call.json | {"index": index, "function": {"name": call.name, "arguments": ""}}
            yield {"delta": {"tool_calls": [named]}, "logprobs": None}
            arguments = {"index": index, "function": {"arguments": call.arguments}}
            yield {"delta": {"tool_calls": [arguments]}, "logprobs": None}
