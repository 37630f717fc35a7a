"""An adapter's device from its opening to its end: its handles, what it refuses, and that it was lost."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu import aborting_calls
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.commands import Command, Copy
from pteron.gpu.fork import check_not_forked, in_child, new_lock, when_forked
from pteron.gpu.native import UNMAPPED, device_error, errors_as_device_error

_END_SECONDS = 10.0  # that the end of the process waits for a device at most


class OpenDevice:
    """It opens in a thread of its own, and whoever needs it first waits."""

    def __init__(self, adapter: AdapterInfo) -> None:
        self.adapter = adapter
        self.lock = new_lock()  # one call at a time: wgpu's objects are shared by all of them
        thread = ThreadPoolExecutor(1, "pteron-device")
        self._requested = thread.submit(_request, adapter)
        thread.shutdown(wait=False)
        self._device: Any = None
        self._queue: Any = None
        self.is_open = False  # and known to be: `check_open` has nothing to say
        self.is_closed = False
        self._lost_while = ""  # what was being done when it was found to be lost
        self._freed: WeakSet[Any] = WeakSet()  # buffers, as long as somebody holds them
        self._last_freed = object()  # another one whenever a buffer is freed
        _devices.add(self)

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ", lost" if self.is_lost else ""
        return f"<pteron.Device {self.adapter}{state}>"

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def handle(self) -> Any:
        """The wgpu device."""
        if not self.is_open:
            self.check_open()
        return self._device

    @property
    def queue(self) -> Any:
        """The raw handle of the wgpu device's queue."""
        if not self.is_open:
            self.check_open()
        return self._queue

    def check_open(self) -> None:
        """Raise a DeviceError unless it is open; waits where it is about to be. What every call does looks at
        `is_open` first."""
        check_not_forked()
        if not self.is_closed:
            self._device, self._queue = self._requested.result()
        self.is_open = True  # first, so that whoever closes it meanwhile has the last word
        if self.is_closed:
            self.is_open = False
            raise DeviceError(f"the device {self.adapter} is closed")
        if self._lost_while:
            raise self.lost(self._lost_while)

    @property
    def is_lost(self) -> bool:
        """Whether it was found to be lost: whatever is asked of it then raises DeviceLost."""
        return bool(self._lost_while)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, or about to be."""
        is_failed = self._requested.done() and self._requested.exception() is not None
        return not (self.is_closed or self.is_lost or is_failed)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Around calls of wgpu: what they raise becomes a DeviceError that says what was being done."""
        try:
            with errors_as_device_error(what):
                yield
        except DeviceLost as error:
            raise self.lost(what) from error

    def refused(self, doing: str, error: BaseException) -> DeviceError:
        """The error to raise for one of wgpu's, of calls that are made too often to be in `doing`."""
        refused = device_error(doing, str(error))
        return self.lost(doing) if isinstance(refused, DeviceLost) else refused

    def lost(self, doing: str) -> DeviceLost:
        """Take the device for lost from now on; the error to raise."""
        self._lost_while = self._lost_while or doing
        self.is_open = False
        return DeviceLost(
            f"{self.adapter} was lost (noticed while {self._lost_while}), and with it all that was there; "
            "load programs again, by Program.reload() or load(): they get a new device"
        )

    def free(self, buffer: Any) -> None:
        """Give a buffer's memory back; commands already submitted may still use it."""
        if self.is_open or (self.is_usable and not in_child()):  # else it goes with the device
            self._freed.add(buffer)
            self._last_freed = object()
            buffer.destroy()

    def check_there(self, commands: Sequence[Command]) -> None:
        """Raise a DeviceError where a buffer of a command is freed or mapped, so that it cannot be used."""
        last_freed = self._last_freed
        for command in commands:
            if command.there is not last_freed:
                for buffer in command.buffers if self._freed else ():
                    if buffer in self._freed:
                        raise DeviceError(
                            f"{buffer.label!r} was freed before commands that use it were submitted"
                        )
                command.there = last_freed
            if type(command) is Copy and command.target._map_state != UNMAPPED:  # only copies can be to these
                raise DeviceError(f"{command.target.label!r} is mapped, commands cannot use it meanwhile")

    def submit(self, command_buffer: Any, numbers: list[int]) -> int:
        """Hand a valid command buffer to the queue; the submission's number, which the list gets too. Whoever
        calls this holds the lock and has checked that its buffers are there."""
        if not self.is_open:
            self.check_open()
        try:
            aborting_calls.submit(self._queue, command_buffer, numbers)
        except DeviceLost as error:
            raise self.lost("submitting commands") from error
        return numbers[0]

    def poll(self, *, wait: bool, submission: int | None = None) -> None:
        """Let callbacks happen, after all work or that of one submission where it is waited for."""
        if not self.is_open:
            self.check_open()
        try:
            aborting_calls.poll(self._device._internal, wait, submission)
        except DeviceLost as error:
            raise self.lost("waiting for results") from error

    def close(self) -> None:
        """Release the device; programs on it can no longer run."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self.is_open = False
                if not (in_child() or self.is_lost or self._requested.exception()):
                    device, _ = self._requested.result()
                    device.destroy()


def _request(adapter: AdapterInfo) -> tuple[Any, Any]:
    """The wgpu device of an adapter, and the raw handle of its queue."""
    with errors_as_device_error(f"opening {adapter}"):
        device = adapter.handle.request_device_sync(required_features=adapter.used_features)
        return device, device.queue._internal


_devices: WeakSet[OpenDevice] = WeakSet()


@atexit.register
def _let_nobody_in() -> None:
    """At the end of the process, hold the locks of all devices.

    Python ends threads that nobody waits for as soon as they need it again, which must not be inside a call
    of wgpu's library: it takes that for a reason to abort. Whoever is in the midst of one is waited for.
    """
    for device in list(_devices):
        device.lock.acquire(timeout=_END_SECONDS)


def _forked() -> None:
    for device in list(_devices):
        device.is_open = False


when_forked(_forked)
