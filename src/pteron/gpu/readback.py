"""Reading GPU results: a staging buffer that is mapped on the calling thread.

wgpu's own map hands over to a polling thread and costs some 190 µs more than asking the library directly.
"""

from __future__ import annotations

from itertools import count
from time import perf_counter
from typing import Any, Protocol
from weakref import ref

from pteron.errors import DeviceError
from pteron.gpu import aborting_calls
from pteron.gpu.native import PENDING, UNMAPPED, address, ffi, lib

_tickets = count(1)
_finished: dict[int, int] = {}  # status of a map by its ticket
# Buffers whose map was asked for. They are held here, so that the garbage collector never finds one together
# with a stream that still means to read it: it would finalise both, in any order.
_asked: dict[int, tuple[Any, ref[Readback]]] = {}
_ASKED_MAX = 16  # before those who asked are looked for
_interruptions: list[BaseException] = []
_CALLBACK_INFO = ffi.typeof("WGPUBufferMapCallbackInfo *")
_POINTER = ffi.typeof("void *")
_MODE = lib.WGPUCallbackMode_AllowProcessEvents
_CALLBACK = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
_DONE_CALLBACK = "void(WGPUQueueWorkDoneStatus, WGPUStringView, void *, void *)"
_DONE_CALLBACK_INFO = ffi.typeof("WGPUQueueWorkDoneCallbackInfo *")


def _on_interrupted(_kind: object, error: BaseException, trace: Any) -> None:
    """A Ctrl-C that lands in the callback: the map is finished all the same, and the interruption is
    raised once the library has returned."""
    _finish(**{name: trace.tb_frame.f_locals[name] for name in ("status", "ticket")})
    _interruptions.append(error)


def _finish(status: int, ticket: Any) -> None:
    _finished[address(ticket)] = int(status)


@ffi.callback(_CALLBACK, onerror=_on_interrupted)  # type: ignore[untyped-decorator]  # cffi has no types
def _on_mapped(status: int, _message: Any, ticket: Any, _unused: Any) -> None:
    _finish(status, ticket)


@ffi.callback(_DONE_CALLBACK, onerror=_on_interrupted)  # type: ignore[untyped-decorator]
def _on_done(status: int, _message: Any, ticket: Any, _unused: Any) -> None:
    _finish(status, ticket)


class StagingOwner(Protocol):
    """The device that staging buffers come from and go back to."""

    lock: Any
    is_open: bool  # and known to be: then there is nothing that `check_open` would say

    @property
    def name(self) -> str: ...

    @property
    def spin_seconds(self) -> float:
        """How long it is worth asking whether results are there before sleeping until they are."""

    @property
    def queue(self) -> Any: ...

    def check_open(self) -> None: ...

    def poll(self, *, wait: bool, submission: int | None = None) -> None: ...

    def recycle(self, staging: Any, size: int) -> None: ...


def wait_for_all(device: StagingOwner, spin_seconds: float) -> None:
    """Return once all is done that was submitted to a device. It is asked again and again for `spin_seconds`,
    since who sleeps wakes up late and is slow at first; after that the wait is asleep."""
    if spin_seconds:
        ticket = next(_tickets)
        info = ffi.new(_DONE_CALLBACK_INFO)
        info.mode = _MODE
        info.callback = _on_done
        info.userdata1 = ffi.cast(_POINTER, ticket)
        lib.wgpuQueueOnSubmittedWorkDone(device.queue, info[0])
        until = perf_counter() + spin_seconds
        while ticket not in _finished and perf_counter() < until:
            device.poll(wait=False)
        if ticket not in _finished:
            device.poll(wait=True)
        _finished.pop(ticket, None)
    else:
        device.poll(wait=True)
    if _interruptions:
        raise _interruptions.pop()


class Readback:
    """Results on their way to the host: commands copy into `staging`, `peek` waits for them."""

    def __init__(self, owner: StagingOwner, staging: Any, size: int) -> None:
        self._owner = owner
        self.staging = staging
        self._size = size
        self._ticket = 0  # of a map that was asked for
        self._is_mapped = False

    def begin(self) -> None:
        """Ask for the results; to be called once the commands that fill them are submitted."""
        if not self._owner.is_open:
            self._owner.check_open()
        self.staging._map_state = PENDING
        if len(_asked) > _ASKED_MAX:
            _forget_abandoned()
        self._ticket = next(_tickets)
        _asked[self._ticket] = self.staging, ref(self)
        info = ffi.new(_CALLBACK_INFO)
        info.mode = _MODE
        info.callback = _on_mapped
        info.userdata1 = ffi.cast(_POINTER, self._ticket)
        lib.wgpuBufferMapAsync(self.staging._internal, lib.WGPUMapMode_Read, 0, self._size, info[0])

    def is_ready(self) -> bool:
        """Whether the results are here, without waiting."""
        if not self._is_mapped:
            self._owner.poll(wait=False)
        return self._is_mapped or self._ticket in _finished

    def peek(self, offset: int, size: int, submission: int | None = None) -> bytes:
        """`size` bytes from `offset` on; waits for everything submitted, or for one submission only."""
        if size == 0:
            return b""
        if not self._is_mapped:
            self._wait(submission)
        with self._owner.lock:
            whole = self._range(0, self._size)
            return bytes(ffi.buffer(whole, self._size)[offset : offset + size])

    def fill(self, array: Any, offset: int) -> None:
        """Copy what lies from `offset` on, whole words, into an array in one piece; waits for it."""
        if array.nbytes == 0:
            return
        if not self._is_mapped:
            self._wait(None)
        with self._owner.lock:
            ffi.memmove(array, self._range(offset, -(-array.nbytes // 4) * 4), array.nbytes)

    def release(self) -> None:
        """Give the staging buffer back to its device, where it is certain that nothing maps it."""
        with self._owner.lock:
            if self._is_mapped:
                lib.wgpuBufferUnmap(self.staging._internal)
                self._is_mapped = False
                self.staging._map_state = UNMAPPED
            if self.staging._map_state == UNMAPPED:
                self._owner.recycle(self.staging, self._size)

    def _range(self, offset: int, size: int) -> Any:
        """Where mapped bytes lie; good as long as the device's lock is held, so that nobody closes it."""
        if not self._owner.is_open:
            self._owner.check_open()
        return aborting_calls.mapped_range(self.staging, self._size, offset, size)

    def _wait(self, submission: int | None) -> None:
        if not self._ticket:
            self.begin()
        try:
            if self._owner.spin_seconds:
                self._spin()
            while self._ticket not in _finished:
                self._owner.poll(wait=True, submission=submission)
        except DeviceError:  # it will never be
            _asked.pop(self._ticket, None)
            raise
        _asked.pop(self._ticket, None)
        status, self._ticket = _finished.pop(self._ticket), 0
        if status != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError(f"results could not be read back from {self._owner.name}")
        self._is_mapped = True
        if _interruptions:
            raise _interruptions.pop()

    def _spin(self) -> None:
        """Ask for a while whether the results are there."""
        until = perf_counter() + self._owner.spin_seconds
        while self._ticket not in _finished and perf_counter() < until:
            self._owner.poll(wait=False)


def _forget_abandoned() -> None:
    """Drop what was asked for by those who are gone, interrupted before they read it."""
    for ticket, (_, asker) in list(_asked.items()):
        if asker() is None:
            _asked.pop(ticket, None)
            _finished.pop(ticket, None)
