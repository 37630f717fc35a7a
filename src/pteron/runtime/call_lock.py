"""Whose turn it is: calls of one method follow one another, whoever makes them."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.errors import DeviceError
from pteron.gpu.fork import in_child


@dataclass(slots=True)
class CallLock:
    """Whether a call of a method is under way, in any of its sequences, which share its memory.

    Threads wait for one another's calls. But what comes in the middle of a call on the same thread, as a
    signal's handler does, gets past every lock that this thread holds.
    """

    is_taken: bool = False

    def check_free(self, where: str) -> None:
        """Refuse what comes in the middle of a call; in a forked child no call is under way."""
        if self.is_taken and not in_child():
            raise DeviceError(f"{where}: called by what interrupted another call, as a signal's handler")
