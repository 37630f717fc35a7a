"""Reading GPU results: a staging buffer, mapped on the calling thread.

Raw calls map it: wgpu's own `map` uses a polling thread and takes about 190 µs more.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from time import perf_counter
from typing import Any
from weakref import ref

from pteron.errors import DeviceError
from pteron.gpu.library import FFI, PENDING, UNMAPPED, Library, address
from pteron.gpu.open_device import OpenDevice

_tickets = count(1)
_finished: dict[int, int] = {}  # ticket of a map -> status
# Ticket -> staging buffer, from the map request until it is read. This reference keeps GC from finalizing a
# staging buffer together with a stream that still reads it, when both are in one reference cycle.
_pending: dict[int, tuple[Any, ref[Readback]]] = {}
_PENDING_MAX = 16  # above this, abandoned requests are dropped
_MAP_ALIGNMENT = 8  # bytes: where a mapped range may begin
_interrupts: list[BaseException] = []


def _on_interrupted(_kind: object, error: BaseException, trace: Any) -> None:
    """Keep a KeyboardInterrupt that was raised inside a callback, which cffi would drop: finish the map, and
    raise the interrupt after the wait."""
    _finish(**{name: trace.tb_frame.f_locals[name] for name in ("status", "ticket")})
    _interrupts.append(error)


def _finish(status: int, ticket: Any) -> None:
    _finished[address(ticket)] = int(status)


def _on_finished(status: int, _message: Any, ticket: Any, _unused: Any) -> None:
    _finish(status, ticket)


@cache
def _callback(library: Library, status: str) -> Any:
    """The callback of a kind of request, which has its own type of status."""
    kind = f"void({status}, WGPUStringView, void *, void *)"
    return library.ffi.callback(kind, _on_finished, onerror=_on_interrupted)


def _callback_info(library: Library, request: str, status: str, ticket: int) -> Any:
    """What a request takes, so that `_finished` has the ticket's status when it is done."""
    info = library.ffi.new(f"WGPU{request}CallbackInfo *")
    info.mode = library.lib.WGPUCallbackMode_AllowProcessEvents
    info.callback = _callback(library, status)
    info.userdata1 = library.ffi.cast("void *", ticket)
    return info[0]


def wait_for_all(device: OpenDevice, spin_seconds: float) -> None:
    """Wait until all submitted work is done: poll for `spin_seconds`, because a sleeping thread wakes up
    late, then sleep."""
    if spin_seconds:
        ticket = next(_tickets)
        info = _callback_info(device.library, "QueueWorkDone", "WGPUQueueWorkDoneStatus", ticket)
        device.library.lib.wgpuQueueOnSubmittedWorkDone(device.queue, info)
        _spin(device, ticket, spin_seconds)
        if ticket not in _finished:
            device.poll(wait=True)
        _finished.pop(ticket, None)
    else:
        device.poll(wait=True)
    if _interrupts:
        raise _interrupts.pop()


def _spin(device: OpenDevice, ticket: int, seconds: float) -> None:
    """Poll until a ticket is finished, or the time is over."""
    until = perf_counter() + seconds
    while ticket not in _finished and perf_counter() < until:
        device.poll(wait=False)


class Readback:
    """A transfer of results to the host. Commands copy them into `staging`; `peek` waits and reads."""

    def __init__(self, device: OpenDevice, staging: Any, size: int) -> None:
        self._device = device
        self.staging = staging
        self._size = size
        self._ticket = 0  # of the map request; 0: none
        self._is_mapped = False

    def begin(self) -> None:
        """Request the map; call it after the commands that fill the buffer are submitted."""
        if not self._device.is_open:
            self._device.check_open()
        if self.staging._map_state != UNMAPPED:
            raise DeviceError(f"{self.staging.label!r} is being read back already")
        self.staging._map_state = PENDING
        if len(_pending) > _PENDING_MAX:
            _forget_abandoned()
        self._ticket = next(_tickets)
        _pending[self._ticket] = self.staging, ref(self)
        library = self._device.library
        info = _callback_info(library, "BufferMap", "WGPUMapAsyncStatus", self._ticket)
        read = library.lib.WGPUMapMode_Read
        library.lib.wgpuBufferMapAsync(self.staging._internal, read, 0, self._size, info)

    def is_ready(self) -> bool:
        """Whether the results are available, without waiting."""
        if not self._is_mapped:
            self._device.poll(wait=False)
        return self._is_mapped or self._ticket in _finished

    def peek(self, offset: int, size: int, submission: int | None = None) -> bytes:
        """`size` bytes from `offset` on; waits for all submitted work, or for one submission."""
        if size == 0:
            return b""
        if not self._is_mapped:
            self._wait(submission)
        with self._device.lock:
            whole = self._range(0, self._size)
            return bytes(FFI.buffer(whole, self._size)[offset : offset + size])

    def fill(self, array: Any, offset: int, submission: int | None = None) -> None:
        """Copy whole words from `offset` on into a contiguous array; waits as `peek` does."""
        if array.nbytes == 0:
            return
        if not self._is_mapped:
            self._wait(submission)
        with self._device.lock:
            FFI.memmove(array, self._range(offset, -(-array.nbytes // 4) * 4), array.nbytes)

    def release(self) -> None:
        """Return the staging buffer to its device, unless a map request is pending."""
        with self._device.lock:
            if self._is_mapped:
                self._device.library.lib.wgpuBufferUnmap(self.staging._internal)
                self._is_mapped = False
                self.staging._map_state = UNMAPPED
            if self.staging._map_state == UNMAPPED:
                self._device.recycle(self.staging, self._size)

    def _range(self, offset: int, size: int) -> Any:
        """The address of mapped bytes; valid while the device's lock is held. wgpu-native aborts the process
        if the range is wrong."""
        if not self._device.is_open:
            self._device.check_open()
        if offset % _MAP_ALIGNMENT or size % 4 or not 0 <= offset <= offset + size <= self._size:
            raise DeviceError(f"cannot read bytes {offset:,} to {offset + size:,} of {self._size:,}")
        return self._device.library.lib.wgpuBufferGetConstMappedRange(self.staging._internal, offset, size)

    def _wait(self, submission: int | None) -> None:
        if not self._ticket:
            self.begin()
        try:
            if self._device.spin_seconds:
                _spin(self._device, self._ticket, self._device.spin_seconds)
            while self._ticket not in _finished:
                self._device.poll(wait=True, submission=submission)
        except DeviceError:
            _pending.pop(self._ticket, None)
            raise
        _pending.pop(self._ticket, None)
        status, self._ticket = _finished.pop(self._ticket), 0
        if status != self._device.library.lib.WGPUMapAsyncStatus_Success:
            raise DeviceError(f"results could not be read back from {self._device.name}")
        self._is_mapped = True
        if _interrupts:
            raise _interrupts.pop()


def _forget_abandoned() -> None:
    """Drop map requests whose Readback no longer exists, because an interrupt came before the read."""
    for ticket, (_, readback) in list(_pending.items()):
        if readback() is None:
            _pending.pop(ticket, None)
            _finished.pop(ticket, None)
