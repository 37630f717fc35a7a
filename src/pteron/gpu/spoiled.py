"""Threads that survived a panic of wgpu's library. It takes them for threads that panic ever after, and frees
nothing on those: so once there is one, another thread releases what is given up, and records for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from pteron.gpu.handles import release_by

Result = TypeVar("Result")
Task: TypeAlias = Callable[[], object]
_starting = threading.Lock()
_tasks: SimpleQueue[Task] = SimpleQueue()
_is_working = False
_survivors = threading.local()


def survived() -> None:
    """To be called on the thread that did."""
    global _is_working
    _survivors.is_one = True
    with _starting:
        if not _is_working:
            threading.Thread(target=_work, name="pteron-releases", daemon=True).start()
            release_by(lambda function, handle: _tasks.put(lambda: function(handle)))
            _is_working = True


def where_it_frees(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function gives, called on this thread unless it is a survivor."""
    if not (_is_working and getattr(_survivors, "is_one", False)):
        return function(*arguments)
    results: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

    def task() -> None:
        try:
            results.put((function(*arguments), None))
        except BaseException as error:
            results.put((None, error))

    _tasks.put(task)
    result, error = results.get()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # there is one where there was no error


def _work() -> None:
    while True:
        _tasks.get()()
