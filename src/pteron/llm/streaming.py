"""A text for `async for`: the answer of an engine, which ends when nobody waits for it any more."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from pteron.llm.engine import Answer
from pteron.llm.output import Piece, Statistics


class Stream:
    """The pieces of one text, for one task of an event loop; `statistics` tell what it took so far.

    It ends with the text, with `aclose`, or when nobody holds it any more, as after a `break`.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._pieces = aiter(answer)

    @property
    def statistics(self) -> Statistics:
        return self._answer.statistics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Want no more of it, and wait until its sequence is free."""
        self._answer.cancel()
        with suppress(Exception):  # of what nobody waits for
            async for _ in self._pieces:
                pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
