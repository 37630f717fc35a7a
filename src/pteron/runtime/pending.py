"""Calls that were submitted -> their outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.host.tensors import HostResult
from pteron.host.values import RuntimeValue

_IN_FLIGHT = 4  # calls of a method: each has its inputs and outputs in staging buffers
_AHEAD = 2  # calls in flight while the caller uses the result of one before them
S = TypeVar("S")
T = TypeVar("T")


class Pending(Generic[T]):
    """A call that was submitted and may still run.

    Its outputs are copied to the host as part of its own submission, so reading them waits for this call and
    those before it, and not for later ones. Any thread may read them, in any order. Nothing waits for a
    Pending that is dropped; its call still runs.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read: Callable[[], T] | None = read  # None: it is read
        self._outputs: T | None = None
        self._lock = new_lock()

    def result(self) -> T:
        """What the call returns, once it has finished. Errors that the GPU reports late are raised here."""
        with self._lock:
            if self._read is not None:
                self._outputs = self._read()
                self._read = None
            return self._outputs  # type: ignore[return-value]  # it is read

    def __await__(self) -> Generator[Any, None, T]:
        """`await pending` is `result()` in a thread, while the event loop goes on."""
        import asyncio  # here: a slow import

        return asyncio.to_thread(self.result).__await__()


class InFlight:
    """The latest submissions of a method: at most _IN_FLIGHT run at a time."""

    def __init__(self) -> None:
        self._submissions: deque[int] = deque()

    def add(self, outputs: Iterable[RuntimeValue]) -> int:
        """Add a call. Returns its number: 0, if it has no outputs to wait for."""
        number = max((out.submission or 0 for out in outputs if isinstance(out, HostResult)), default=0)
        if number:
            self._submissions.append(number)
        return number

    def remove(self, number: int) -> None:
        """Remove a call that has finished, unless something waited for it before."""
        with suppress(ValueError):
            self._submissions.remove(number)

    def wait_for_room(self, lock: AbstractContextManager[Any], device: Device | None) -> None:
        """Wait for the oldest submission if there is no room. Other threads may use the device meanwhile."""
        with lock:
            oldest = self._submissions.popleft() if len(self._submissions) == _IN_FLIGHT else None
        if oldest is not None and device is not None:
            device.poll(wait=True, submission=oldest)


def in_order(submit: Callable[[S], Pending[T]], calls: Iterable[S]) -> Iterator[T]:
    """The results of calls, in order. While the caller uses one, the next _AHEAD are in flight. If a call
    cannot be submitted, the results before it come first."""
    pending: deque[Pending[T]] = deque()
    remaining, end, error = iter(calls), object(), None
    while error is None:
        try:
            call: Any = next(remaining, end)
            if call is end:
                break
            pending.append(submit(call))
        except Exception as found:
            error = found
        else:
            if len(pending) > _AHEAD:
                yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
    if error is not None:
        raise error
