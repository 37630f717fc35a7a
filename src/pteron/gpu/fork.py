"""Processes forked after drivers were loaded. Drivers work with threads, which stay behind in the parent: a
child that used them would wait for ever, so it is told instead, and frees nothing. Its parent goes on.

What drivers do when a process ends is as bad: NVIDIA's crashes there, and takes from the parent what both
have open. So a child leaves by `exit()` as it would by `os._exit()`, where the C library can be told so.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pteron.errors import DeviceError

_C: Any = ctypes.CDLL(None) if os.name == "posix" else None
_is_child = False
_locks: WeakSet[threading.RLock] = WeakSet()


def in_child() -> bool:
    """Whether this process was forked after drivers were loaded."""
    return _is_child


def check_not_forked() -> None:
    """Raise a DeviceError in such a process."""
    if _is_child:
        raise DeviceError(
            "this process was forked from one that had loaded the GPU's drivers, and they do not work in it: "
            "start processes with multiprocessing.get_context('spawn'), or fork before Pteron is first used"
        )


def new_lock() -> threading.RLock:
    """A lock that is open in a forked child, whoever held it in the parent."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def when_forked(then: Callable[[], None]) -> None:
    """Let a forked child call a function before anything else."""
    if hasattr(os, "register_at_fork"):  # there is none on Windows, and no fork
        os.register_at_fork(after_in_child=then)


def _forked() -> None:
    global _is_child
    _is_child = True
    if hasattr(_C, "on_exit"):  # as in glibc
        _C.on_exit(_C._exit, None)  # what was registered last is called first, with the status
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as Python's own modules do; no stub has it


when_forked(_forked)
