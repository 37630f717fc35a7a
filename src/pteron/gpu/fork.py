"""Guards for processes that fork after GPU drivers were loaded.

Drivers use threads, and a forked child has none of them: a driver call there would wait forever. So in the
child every use of a device raises DeviceError and nothing is freed. The parent is not affected.

NVIDIA's exit handler crashes in the child and damages state that it shares with the parent. So `exit()` in
the child acts like `os._exit()` if the C library has `on_exit`.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pteron.errors import DeviceError

_C: Any = ctypes.CDLL(None) if hasattr(os, "fork") else None
_is_child = False
_locks: WeakSet[threading.RLock] = WeakSet()


def in_child() -> bool:
    """Whether this process was forked after drivers were loaded."""
    return _is_child


def check_not_forked() -> None:
    """Raise a DeviceError if this process was forked after drivers were loaded."""
    if _is_child:
        raise DeviceError(
            "this process was forked after the GPU drivers were loaded, and they do not work in it: start "
            "processes with multiprocessing.get_context('spawn'), or fork before the first use of Pteron"
        )


def new_lock() -> threading.RLock:
    """A lock that is free in a forked child, even if a thread of the parent holds it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def when_forked(then: Callable[[], None]) -> None:
    """Call a function in every forked child, before anything else."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=then)


def _forked() -> None:
    global _is_child
    _is_child = True
    if hasattr(_C, "on_exit"):  # glibc
        _C.on_exit(_C._exit, None)  # registered last, so called first
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does; no stub has it


when_forked(_forked)
