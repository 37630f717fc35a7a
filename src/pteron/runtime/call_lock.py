"""Calls of one method do not overlap: threads wait, and a re-entrant call is an error."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.errors import DeviceError
from pteron.gpu.fork import in_child


@dataclass(slots=True)
class CallLock:
    """Whether a call of a method is running, in any of its sequences: they share its memory.

    Threads wait for the device's lock. A signal handler runs on the thread that holds that lock, so it needs
    this check.
    """

    is_taken: bool = False

    def check_free(self, where: str) -> None:
        """Raise a DeviceError in a re-entrant call. In a forked child no call is running."""
        if self.is_taken and not in_child():
            raise DeviceError(
                f"{where}: re-entrant call: a signal handler called this method while a call was running on "
                "this thread"
            )
