"""A request on its way through an engine: what its reader and the engine's thread share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic

from pteron.llm.engine.notify import Notifier
from pteron.llm.engine.request import Request
from pteron.llm.output import Piece, Statistics


class Job:
    """The engine's thread adds pieces and ends it, once; anybody may cancel it, and read.

    It does not know its Answer, so that nothing but its readers keeps one.
    """

    def __init__(self, request: Request, tell: Callable[[], None]) -> None:
        self.request = request
        self.number = 0  # among all that an engine has taken on
        self.deadline = inf if request.seconds is None else monotonic() + request.seconds
        self.begun: float | None = None  # when it got a sequence; None: it waits
        self.statistics = Statistics(len(request.ids))
        self.pieces: list[Piece] = []
        self.error: BaseException | None = None
        self.news = Notifier()
        self.is_cancelled = False
        self.is_over = False
        self._tell = tell  # that it is cancelled

    def cancel(self) -> None:
        """Have the engine end it at its next step. A finalizer may call this: no lock is taken."""
        if not (self.is_over or self.is_cancelled):
            self.is_cancelled = True
            self._tell()

    def give(self, pieces: Iterable[Piece]) -> None:
        """Tokens that have become text."""
        self.pieces.extend(pieces)
        self.news.tell()

    def end(self, reason: str, error: BaseException | None = None) -> None:
        """Nothing more will come."""
        # What failed has references to models and memory, which no reader needs.
        self.error = error.with_traceback(None) if error else None
        self.statistics.finish_reason = reason
        self.is_over = True
        self.news.tell()

    def reason_to_end(self, now: float) -> str | None:
        """Whether it is no longer wanted, or its time is up."""
        if self.is_cancelled:
            return "cancelled"
        return "time" if now >= self.deadline else None

    def has(self, count: int) -> bool:
        """Whether there are more than so many pieces, or will never be."""
        return len(self.pieces) > count or self.is_over
