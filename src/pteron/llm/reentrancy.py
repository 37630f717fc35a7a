"""Guards against re-entrant calls.

A signal handler or a finalizer runs in the middle of whatever its thread is doing, and passes through a
re-entrant lock that this thread holds: its generation would start in the middle of another one.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from pteron.errors import DeviceError
from pteron.gpu import Device
from pteron.gpu.fork import new_lock

_of_devices: WeakKeyDictionary[Device, threading.RLock] = WeakKeyDictionary()


def non_reentrant(lock: threading.RLock) -> threading.RLock:
    """The lock itself; raises if this thread holds it already.

        with non_reentrant(lock): ...

    `with` releases the lock in C code, which no signal interrupts.
    """
    if lock._is_owned():  # type: ignore[attr-defined]  # as `threading.Condition` does; no stub has it
        raise DeviceError(
            "re-entrant call: a signal handler or finalizer used a language model while a call was running "
            "on this thread; use the model from the interrupted code or from another thread"
        )
    return lock


def device_guard(device: Device) -> threading.RLock:
    """The lock to hold, inside the device lock, from the first prepared command to the end of its
    submission."""
    lock = _of_devices.get(device)
    if lock is None:
        lock = _of_devices.setdefault(device, new_lock())
    return non_reentrant(lock)
