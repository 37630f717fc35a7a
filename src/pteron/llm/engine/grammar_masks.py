"""Token masks of grammars: which tokens may come next, computed while the GPU runs the model.

In: a matcher, which must not be used elsewhere until its mask is done. Out: the mask, or an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic

import numpy as np
import numpy.typing as npt

from pteron.llm.grammar import Matcher

THREADS = 2  # llguidance releases the GIL; the scheduler's thread needs a core too
NOTIFY_INTERVAL = 0.001  # seconds between notifications while more masks are pending


class PendingMask:
    """The next mask of a matcher. With `is_lazy`, `get` computes it on the thread that needs it."""

    def __init__(self, matcher: Matcher, *, is_lazy: bool = False) -> None:
        self.is_done = is_lazy
        self.is_wanted = True
        self.requested = monotonic()
        self.error: BaseException | None = None
        self._matcher = matcher
        self._mask: npt.NDArray[np.uint32] | None = None

    def compute(self) -> None:
        """Compute it, on any thread."""
        try:
            if self.is_wanted:
                self._mask = self._matcher.mask()
        except BaseException as error:  # raised by `get`
            self.error = error
        self.is_done = True

    def get(self) -> npt.NDArray[np.uint32]:
        """The mask, if it is done; raises what went wrong."""
        if self._mask is None and self.error is None:
            self.compute()
        if self.error is not None:
            raise self.error
        assert self._mask is not None
        return self._mask


class MaskWorkers:
    """Worker threads that compute masks in order. They notify when no mask is pending, and at intervals
    before that: the listener then checks all of its masks. The threads start with the first mask, reference
    no engine, and end with `close`; nothing waits for them."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._pending: SimpleQueue[PendingMask | None] = SimpleQueue()
        self._threads = 0

    def request(self, matcher: Matcher) -> PendingMask:
        """Queue a mask. Only one thread may call this."""
        if self._threads < THREADS:
            arguments = self._pending, self._notify
            threading.Thread(target=_work, args=arguments, name="pteron masks", daemon=True).start()
            self._threads += 1
        mask = PendingMask(matcher)
        self._pending.put(mask)
        return mask

    def close(self) -> None:
        for _ in range(self._threads):
            self._pending.put(None)


def _work(pending: SimpleQueue[PendingMask | None], notify: Callable[[], None]) -> None:
    notified = monotonic()
    while (mask := pending.get()) is not None:
        mask.compute()
        del mask  # not kept alive while waiting for the next
        now = monotonic()
        if pending.empty() or now - notified >= NOTIFY_INTERVAL:
            notified = now
            notify()
