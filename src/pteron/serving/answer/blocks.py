"""Blocks: what a model has answered so far, and the changes from which each API makes the events of a stream.

In: the parts of one answer. Out: blocks of text, of reasoning and of calls, one after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pteron.llm import Piece
from pteron.serving.answer.parts import CallArguments, CallBegin, End, Part, Text, Thought

Kind: TypeAlias = Literal["text", "thought", "call"]


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of an answer. The text of a call is its arguments, in JSON."""

    kind: Kind
    index: int  # among the blocks of its answer
    call_id: str = ""
    name: str = ""  # of the called tool
    text: str = ""
    is_open: bool = True  # more of it may follow
    key: str = field(default_factory=lambda: uuid.uuid4().hex)  # for APIs that name their blocks


@dataclass(frozen=True, slots=True)
class Open:
    """A block begins; it is still empty."""

    block: Block


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of a block. `piece` is the token that completed it, for log-probabilities; one that completed
    no text may be outside of blocks."""

    block: Block | None
    text: str
    piece: Piece | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """A block is complete."""

    block: Block


Change: TypeAlias = Open | Delta | Close | End


class AnswerBlocks:
    """One answer so far."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.tokens: list[tuple[Block | None, Piece]] = []  # those with log-probabilities
        self.end = End("stop")

    def joined(self, kind: Kind) -> str:
        """The text of all blocks of a kind."""
        return "".join(block.text for block in self.blocks if block.kind == kind)

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == "call"]

    def add(self, part: Part) -> Iterator[Change]:
        """The changes that a part makes, each when it has been made."""
        match part:
            case Text("", piece):
                last = self.blocks[-1] if self.blocks else None
                yield self._extend(last if last and last.is_open and last.kind == "text" else None, "", piece)
            case Text(text, piece):
                yield from self._ensure("text")
                yield self._extend(self.blocks[-1], text, piece)
            case Thought(text):
                yield from self._ensure("thought")
                yield self._extend(self.blocks[-1], text)
            case CallBegin(id, name):
                yield from self._close()
                yield self._open("call", id, name)
            case CallArguments(text):
                yield self._extend(self.blocks[-1], text)
            case End():
                yield from self._close()
                self.end = part
                yield part

    def _ensure(self, kind: Kind) -> Iterator[Change]:
        """Begin a block, unless one of this kind goes on."""
        if not (self.blocks and self.blocks[-1].is_open and self.blocks[-1].kind == kind):
            yield from self._close()
            yield self._open(kind)

    def _open(self, kind: Kind, call_id: str = "", name: str = "") -> Open:
        self.blocks.append(Block(kind, len(self.blocks), call_id, name))
        return Open(self.blocks[-1])

    def _extend(self, block: Block | None, text: str, piece: Piece | None = None) -> Delta:
        if block is not None:
            block.text += text
        if piece is not None:
            self.tokens.append((block, piece))
        return Delta(block, text, piece)

    def _close(self) -> Iterator[Close]:
        if self.blocks and self.blocks[-1].is_open:
            self.blocks[-1].is_open = False
            yield Close(self.blocks[-1])
