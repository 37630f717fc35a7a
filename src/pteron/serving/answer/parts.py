"""Parts: what a model's answer consists of, whichever API it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pteron.llm import Piece


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the answer; `piece` is the token that completed it, for log-probabilities."""

    text: str
    piece: Piece | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """Text of the reasoning before the answer."""

    text: str


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


Part: TypeAlias = Text | Thought | CallBegin | CallArguments | End


def partial_tag(text: str, *tags: str) -> int:
    """The length of a text's end that may be the beginning of a tag."""
    longest = max(map(len, tags), default=0)
    sizes = range(min(len(text), longest - 1), 0, -1)
    return next((size for size in sizes if any(tag.startswith(text[-size:]) for tag in tags)), 0)
