"""Guards against re-entrant calls.

A signal handler or a finalizer can run at any point of its thread, and an RLock that this thread holds does
not stop it. Without a guard, its generation would start in the middle of another one.
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

    It returns the lock instead of being a context manager, because `with lock` releases the lock in C code,
    which no signal can interrupt.
    """
    if lock._is_owned():  # type: ignore[attr-defined]  # as `threading.Condition` does; no stub has it
        raise DeviceError(
            "re-entrant call: a signal handler or finalizer used a language model while a call was running "
            "on this thread; use the model from the interrupted code or from another thread"
        )
    return lock


def device_guard(device: Device) -> threading.RLock:
    """The lock to hold, inside the device lock, from preparing the first command until it is submitted."""
    lock = _of_devices.get(device)
    if lock is None:
        lock = _of_devices.setdefault(device, new_lock())
    return non_reentrant(lock)
