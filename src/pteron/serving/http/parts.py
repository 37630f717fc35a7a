"""Parts: what a model's answer consists of, whichever API it is written in.

In: the pieces of one answer. Out: its text and its tool calls, as they become certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pteron.llm import Piece
from pteron.serving.http.tool_calls import ToolCall, ToolCallParser


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the answer; `piece` is the token that completed it, for log-probabilities."""

    text: str
    piece: Piece | None = None


@dataclass(frozen=True, slots=True)
class CallBegin:
    """The beginning of a tool call, whose arguments follow."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the last call's arguments, which together are JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The end of an answer. `reason` is "stop", "length" or "tool_calls"; `stop` is the stop string that was
    found, or empty."""

    reason: str
    stop: str = ""


Part: TypeAlias = Text | CallBegin | CallArguments | End


class AnswerParser:
    """Without `tools` all of an answer is text. With `one_call` further calls are dropped."""

    def __init__(self, tools: ToolCallParser | None = None, *, one_call: bool = False) -> None:
        self._tools = tools
        self._calls_max = 1 if one_call else None
        self._calls = 0

    def add(self, piece: Piece) -> Iterator[Part]:
        """The parts that the next piece completes."""
        text, calls = self._tools.push(piece.text) if self._tools else (piece.text, [])
        if text or piece.top:
            yield Text(text, piece)
        yield from self._call_parts(calls)

    def end(self, reason: str, stop: str) -> Iterator[Part]:
        """The last parts of an answer."""
        text, calls = self._tools.finish() if self._tools else ("", [])
        if text:
            yield Text(text)
        yield from self._call_parts(calls)
        yield End("tool_calls" if self._calls and reason == "stop" else reason, stop)

    def _call_parts(self, calls: list[ToolCall]) -> Iterator[Part]:
        for call in calls:
            if self._calls != self._calls_max:
                self._calls += 1
                yield CallBegin(call.id, call.name)
                yield CallArguments(call.arguments)
