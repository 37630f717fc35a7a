"""A text for `async for`: pieces come from a thread, which ends when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, suppress
from types import TracebackType
from typing import Self
from weakref import finalize

from pteron.errors import InputError
from pteron.llm.continuing import Continuation, continued
from pteron.llm.pieces import Piece, Statistics
from pteron.llm.text_model import TextModel


class Stream:
    """The pieces of one text, for one task of an event loop; `statistics` tell what it took so far.

    Generating begins with the first piece that is asked for. It ends with the text, with `aclose`, or when
    nobody holds the stream any more, as after a `break`: its sequence is free then.
    """

    def __init__(self, llm: TextModel, asked: Continuation) -> None:
        self.statistics = Statistics()
        self._worker = _Worker(llm, asked, self.statistics)
        self._end = finalize(self, self._worker.is_cancelled.set)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        piece = await self._worker.next()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """End it, and wait until its sequence is free."""
        self._end()
        await self._worker.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Worker:
    """What the thread and the event loop share. Neither holds the stream, so that it can be dropped."""

    def __init__(self, llm: TextModel, asked: Continuation, statistics: Statistics) -> None:
        self.is_cancelled = threading.Event()
        self._llm, self._asked, self._statistics = llm, asked, statistics
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()
        self._is_over = False  # as the event loop has seen it

    async def next(self) -> Piece | None:
        if self._is_over or self.is_cancelled.is_set():
            return None
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            threading.Thread(target=self._run, name="pteron stream").start()
        if loop is not self._loop:
            raise InputError("a stream belongs to the event loop that took its first piece")
        arrived = await self._arrived.get()
        if isinstance(arrived, Piece):
            return arrived
        self._is_over = True
        if arrived is not None:
            raise arrived
        return None

    async def ended(self) -> None:
        """Once the thread has given its sequence back; errors of what nobody waits for are none."""
        while self._loop is not None and not self._is_over:
            self._is_over = not isinstance(await self._arrived.get(), Piece)

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            with closing(continued(self._llm, self._asked, self._statistics)) as pieces:
                for piece in pieces:
                    if self.is_cancelled.is_set() or not self._tell(piece):
                        break
        except BaseException as error:  # whoever waits for pieces is told, whatever it is
            last = error
        self._tell(last)

    def _tell(self, arrived: Piece | BaseException | None) -> bool:
        """Whether there is a loop to tell it to."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, arrived)
            return True
        return False
