"""Work that nothing else of the same thread may come into the midst of.

A signal handler, or what the garbage collector ends, runs wherever its thread happens to be. Locks that a
thread may take twice let it in, and half of one generation would be followed by all of another.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from pteron.errors import DeviceError
from pteron.gpu import Device
from pteron.gpu.fork import new_lock

_of_devices: WeakKeyDictionary[Device, threading.RLock] = WeakKeyDictionary()


def non_reentrant(lock: threading.RLock) -> threading.RLock:
    """A lock to be held next; refused where this thread holds it already.

        with non_reentrant(lock): ...

    Python leaves such a block by the lock's own means, which no signal comes into.
    """
    if lock._is_owned():  # type: ignore[attr-defined]  # as `threading.Condition` asks; no stub has it
        raise DeviceError(
            "a language model is at work further up in this thread: a signal handler or a finalizer leaves "
            "it to the code that it interrupts, or to another thread"
        )
    return lock


def device_guard(device: Device) -> threading.RLock:
    """The lock to be held, within the device's own, from the first preparation of commands to their end."""
    lock = _of_devices.get(device)
    if lock is None:
        lock = _of_devices.setdefault(device, new_lock())
    return non_reentrant(lock)
