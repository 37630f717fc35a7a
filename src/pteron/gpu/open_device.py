"""An adapter's device from opening to closing: its handles, its errors, and whether it was lost."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.commands import Command, Copy
from pteron.gpu.fork import check_not_forked, in_child, new_lock, when_forked
from pteron.gpu.library import UNMAPPED

_SPIN_SECONDS = 200e-6  # poll this long before sleeping: a blocking wait returns about 40 µs late
_STAGING_MAX = 8  # free staging buffers that are kept
_EXIT_SECONDS = 10.0  # at exit, the longest wait for a device's lock


class OpenDevice:
    """A device that opens in a thread; the first use waits for it."""

    def __init__(self, adapter: AdapterInfo) -> None:
        self.adapter = adapter
        self.library = adapter.library
        self.lock = new_lock()  # one call at a time: calls share the library's objects
        thread = ThreadPoolExecutor(1, "pteron-device")
        self._requested = thread.submit(_request, adapter)
        thread.shutdown(wait=False)
        self._device: Any = None
        self._queue: Any = None
        self.is_open = False  # True: `check_open` would not raise
        self.is_closed = False
        # Software adapters run kernels on the CPU: polling would take time from them.
        self.spin_seconds = 0.0 if adapter.is_cpu else _SPIN_SECONDS
        self._staging: list[tuple[Any, int]] = []  # free staging buffers and their sizes in bytes
        self.submissions = 0  # so far
        self._lost_while = ""  # the step that found the device lost
        self._freed: WeakSet[Any] = WeakSet()  # freed buffers that are still referenced
        self._last_freed = object()  # a new object whenever a buffer is freed
        _devices.add(self)

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ", lost" if self.is_lost else ""
        return f"<pteron.Device {self.adapter}{state}>"

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def handle(self) -> Any:
        """The library's device."""
        if not self.is_open:
            self.check_open()
        return self._device

    @property
    def queue(self) -> Any:
        """The raw handle of the device's queue."""
        if not self.is_open:
            self.check_open()
        return self._queue

    def check_open(self) -> None:
        """Wait until the device is open; a DeviceError if it is closed or lost. The hot path tests `is_open`
        first."""
        check_not_forked()
        if not self.is_closed:
            self._device, self._queue = self._requested.result()
        self.is_open = True  # before the test: another thread may close the device now
        if self.is_closed:
            self.is_open = False
            raise DeviceError(f"the device {self.adapter} is closed")
        if self._lost_while:
            raise self.mark_lost(self._lost_while)

    @property
    def is_lost(self) -> bool:
        """Whether a call has found the device lost. Every use then raises DeviceLost."""
        return bool(self._lost_while)

    @property
    def is_usable(self) -> bool:
        """Whether it is open or opening."""
        is_failed = self._requested.done() and self._requested.exception() is not None
        return not (self.is_closed or self.is_lost or is_failed)

    @contextmanager
    def translate_errors(self, action: str) -> Iterator[None]:
        """A block of library calls. An error becomes a DeviceError that says what the device was doing."""
        try:
            yield
        except self.library.errors as error:
            raise self.translate_error(action, error) from error

    def translate_error(self, action: str, error: BaseException) -> DeviceError:
        """The DeviceError for a library's error. The hot path calls this: entering a block takes longer."""
        translated = self.library.error(action, str(error))
        return self.mark_lost(action) if isinstance(translated, DeviceLost) else translated

    def mark_lost(self, action: str) -> DeviceLost:
        """Mark the device as lost; the error to raise."""
        self._lost_while = self._lost_while or action
        self.is_open = False
        return DeviceLost(
            f"{self.adapter} was lost (noticed while {self._lost_while}), with everything on it; "
            "load programs again, by Program.reload() or load(): they get a new device"
        )

    def free(self, buffer: Any) -> None:
        """Free a buffer's memory; commands already submitted may still use it."""
        if self.is_open or (self.is_usable and not in_child()):  # otherwise it is freed with the device
            self._freed.add(buffer)
            self._last_freed = object()
            buffer.destroy()

    def check_buffers(self, commands: Iterable[Command]) -> None:
        """Raise a DeviceError if a buffer of a command is freed or mapped."""
        last_freed = self._last_freed
        for command in commands:
            if command.checked_at is not last_freed:
                for buffer in command.buffers if self._freed else ():
                    if buffer in self._freed:
                        raise DeviceError(
                            f"{buffer.label!r} was freed before commands that use it were submitted"
                        )
                command.checked_at = last_freed
            if type(command) is Copy and command.target._map_state != UNMAPPED:  # staging: only copies use it
                raise DeviceError(f"{command.target.label!r} is mapped, commands cannot use it now")

    def poll(self, *, wait: bool, submission: int | None = None) -> None:
        """Run the library's callbacks; with `wait`, after all submitted work or one submission is done."""
        if not self.is_open:
            self.check_open()
        self.library.poll(self._device._internal, self._queue, wait, submission)

    def recycle(self, staging: Any, size: int) -> None:
        """Keep an unmapped staging buffer for the next readback."""
        if len(self._staging) < _STAGING_MAX and not self.is_closed:
            self._staging.append((staging, size))

    def close(self) -> None:
        """Release the device; programs on it can no longer run."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self.is_open = False
                self._staging.clear()
                if not (in_child() or self.is_lost or self._requested.exception()):
                    device, _ = self._requested.result()
                    device.destroy()


def _request(adapter: AdapterInfo) -> tuple[Any, Any]:
    """The library's device of an adapter, and the raw handle of its queue."""
    try:
        device = adapter.library.request_device(adapter.handle, adapter.used_features, adapter.limits)
    except adapter.library.errors as error:
        raise adapter.library.error(f"opening {adapter}", str(error)) from error
    return device, device.queue._internal


_devices: WeakSet[OpenDevice] = WeakSet()


@atexit.register
def _hold_locks() -> None:
    """Take the locks of all devices when the process exits.

    At exit, Python ends a daemon thread when it next needs the GIL. Ending a thread inside a wgpu call would
    abort the process. With all locks taken, no thread is inside such a call and none can enter one.
    """
    for device in list(_devices):
        device.lock.acquire(timeout=_EXIT_SECONDS)


def _forked() -> None:
    for device in list(_devices):
        device.is_open = False


when_forked(_forked)
