"""What may follow a text by its grammar, found out in threads of their own: an engine's goes on meanwhile.

Enters: a matcher, which nobody else uses until its mask is found. Leaves: the mask, or what went wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic

import numpy as np
import numpy.typing as npt

from pteron.llm.grammar import Matcher

THREADS = 2  # llguidance lets others run meanwhile; an engine on the host's own cores needs them too
APART = 0.001  # seconds between two that are told, while there are more to find


class PendingMask:
    """A mask that is being found."""

    def __init__(self, matcher: Matcher) -> None:
        self.is_done = False
        self.is_wanted = True
        self.asked = monotonic()
        self.error: BaseException | None = None
        self._matcher = matcher
        self._mask: npt.NDArray[np.uint32] | None = None

    def find(self) -> None:
        """Find it, on whatever thread."""
        try:
            if self.is_wanted:
                self._mask = self._matcher.mask()
        except BaseException as error:  # told to the one whose mask it is
            self.error = error
        self.is_done = True

    def get(self) -> npt.NDArray[np.uint32]:
        """The mask, once it is done; raises what went wrong."""
        if self.error is not None:
            raise self.error
        assert self._mask is not None
        return self._mask


class MaskWorkers:
    """Threads that find masks in the order they are asked for, and tell when there are no more, or from time
    to time: who is told looks at all of them. They begin with the first mask, hold neither locks nor anything
    of an engine, and end once this is closed: nobody waits for what they are at, nor does a process that
    ends."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._asked: SimpleQueue[PendingMask | None] = SimpleQueue()
        self._threads = 0

    def find(self, matcher: Matcher) -> PendingMask:
        """Have a mask found; to be asked by one thread alone."""
        if self._threads < THREADS:
            arguments = self._asked, self._tell
            threading.Thread(target=_work, args=arguments, name="pteron masks", daemon=True).start()
            self._threads += 1
        finding = PendingMask(matcher)
        self._asked.put(finding)
        return finding

    def close(self) -> None:
        """Have the threads end."""
        for _ in range(self._threads):
            self._asked.put(None)


def _work(asked: SimpleQueue[PendingMask | None], tell: Callable[[], None]) -> None:
    told = monotonic()
    while (finding := asked.get()) is not None:
        finding.find()
        del finding  # its mask is not kept while the next is waited for
        now = monotonic()
        if asked.empty() or now - told >= APART:  # whoever finds the last one sees that it is
            told = now
            tell()
