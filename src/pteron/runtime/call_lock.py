"""Calls of one method do not overlap: threads wait, and a re-entrant call is an error."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.errors import DeviceError
from pteron.gpu.fork import in_child


@dataclass(slots=True)
class CallLock:
    """Records whether a call of a method is running in any of its sequences, which share the method's memory.

    Other threads wait for the device's lock. A signal handler runs on the thread that already holds the lock
    and would not wait, so this check rejects its call.
    """

    is_taken: bool = False

    def check_free(self, where: str) -> None:
        """Raise a DeviceError if this call is re-entrant. In a forked child no call counts as running."""
        if self.is_taken and not in_child():
            raise DeviceError(
                f"{where}: re-entrant call: a signal handler called this method while a call was running on "
                "this thread"
            )
