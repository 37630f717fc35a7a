"""A device: buffers, pipelines and the queue of one adapter."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu import fatal
from pteron.gpu.adapters import AdapterInfo, choose
from pteron.gpu.commands import Command, Copy
from pteron.gpu.encode import encoder
from pteron.gpu.forking import check_not_forked, in_child, new_lock, when_forked
from pteron.gpu.native import checked, compile_shader, errors_as_device_error, wgpu, write_buffer
from pteron.gpu.readback import Readback, wait_for_all
from pteron.gpu.spoiled import where_it_frees
from pteron.gpu.target import target_of
from pteron.gpu.working import together
from pteron.ops import Weight
from pteron.wgsl import Module

Buffer: TypeAlias = Any  # a wgpu buffer; only this package looks inside
FEATURES = ("shader-f16", "subgroup", "timestamp-query", "timestamp-query-inside-passes")
COMPILERS = min(8, os.cpu_count() or 1)  # threads that compile kernels
_UPLOAD_CHUNK = 1 << 24
_SMALL = 1 << 16
_WRITTEN_MAX = 1 << 27  # bytes that wait in the library's memory before they are sent
_SPIN_SECONDS = 200e-6  # a blocking wait returns some 40 µs later than asking again and again would notice
_WAIT_SECONDS = 0.05  # the same for `wait`, which returns 0.1 to 0.3 ms sooner, and for longer work


@dataclass(slots=True)
class Upload:
    """A weight on the device, and who uses it: the identities of sessions' weights."""

    buffer: Buffer
    users: set[int] = field(default_factory=set)


class Device:
    """An open adapter. Devices are shared: programs on one device can exchange tensors without copies
    to the host. Close it, or leave it to the end of the process.

    It opens in a thread of its own, and whoever needs it first waits; what it is like, its `target`, is known
    before.
    """

    _shared: dict[str, Device] = {}  # noqa: RUF012  # one open device per adapter, on purpose
    _opening = new_lock()
    _is_forked = False  # in a process that was forked from the one that opened devices

    def __init__(self, adapter: AdapterInfo) -> None:
        self.adapter = adapter
        self.lock = new_lock()  # one call at a time: wgpu's objects are shared by all of them
        features = [feature for feature in FEATURES if feature in adapter.features]
        thread = ThreadPoolExecutor(1, "pteron-device")
        self._requested = thread.submit(_request, adapter, features)
        thread.shutdown(wait=False)
        self._device: Any = None
        self._queue: Any = None
        self._pipelines: dict[tuple[str, bool], Any] = {}  # by source and whether it is checked
        self._staging: list[Any] = []
        self._written = 0  # bytes, since writes were last sent
        self.uploads: dict[Weight, Upload] = {}  # by content: programs share them
        self.target = target_of(adapter)
        # Where the CPU is the adapter, asking would take its time.
        self.spin_seconds = 0.0 if adapter.is_cpu else _SPIN_SECONDS
        self.wait_seconds = 0.0 if adapter.is_cpu else _WAIT_SECONDS
        self._buffers: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self._freed: weakref.WeakSet[Buffer] = weakref.WeakSet()  # as long as somebody holds them
        self.mapped: weakref.WeakSet[Buffer] = weakref.WeakSet()  # staging buffers that the host reads
        self.is_closed = False
        self._lost_while = ""  # what was being done when it was found to be lost

    @classmethod
    def open(cls, device: Device | str | None = None) -> Device:
        """The device itself, or the shared one of the adapter that `device` names (see `choose`)."""
        opened = cls.begin(device)
        opened.check_open()
        return opened

    @classmethod
    def begin(cls, device: Device | str | None = None) -> Device:
        """As `open`, but nothing waits for the device, and what fails is raised by whoever needs it."""
        if isinstance(device, Device):
            return device
        return cls._of(choose(device))

    @classmethod
    def _of(cls, adapter: AdapterInfo) -> Device:
        """The shared device of an adapter, opened anew where it can no longer be used."""
        check_not_forked()
        key = f"{adapter.index} {adapter.backend} {adapter.name}"
        with cls._opening:
            encoder().guard()
            if key not in cls._shared or not cls._shared[key].is_usable:
                cls._shared[key] = cls(adapter)
            return cls._shared[key]

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ", lost" if self.is_lost else ""
        return f"<pteron.Device {self.adapter}{state}>"

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def handle(self) -> Any:
        """The wgpu device."""
        self.check_open()
        return self._device

    @property
    def queue(self) -> Any:
        """The raw handle of the wgpu device's queue."""
        self.check_open()
        return self._queue

    def check_open(self) -> None:
        """Raise a DeviceError unless it is open; waits where it is about to be."""
        if self._is_forked:
            check_not_forked()
        if self.is_closed:
            raise DeviceError(f"the device {self.adapter} is closed")
        if self._lost_while:
            raise self._lost(self._lost_while)
        if self._device is None:
            device, self._queue = self._requested.result()
            self._device = device  # last: other threads look whether it is there

    @property
    def is_lost(self) -> bool:
        """Whether it was found to be lost: whatever is asked of it then raises DeviceLost."""
        return bool(self._lost_while)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, or about to be."""
        is_failed = self._requested.done() and self._requested.exception() is not None
        return not (self.is_closed or self.is_lost or is_failed)

    def again(self) -> Device:
        """This device while it can be used, else the shared one of the same adapter, opened anew."""
        check_not_forked()
        return self if self.is_usable else self._of(self.adapter)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Around calls of wgpu: what they raise becomes a DeviceError that says what was being done."""
        try:
            with errors_as_device_error(what):
                yield
        except DeviceLost as error:
            raise self._lost(what) from error

    def checked(self, doing: str, call: Callable[..., Any], *arguments: object) -> Any:
        """What a function gives that makes raw calls of wgpu's library, errors as in `doing`."""
        try:
            return where_it_frees(checked, doing, call, *arguments)
        except DeviceLost as error:
            raise self._lost(doing) from error

    def _lost(self, doing: str) -> DeviceLost:
        """Take the device for lost from now on; the error to raise."""
        self._lost_while = self._lost_while or doing
        return DeviceLost(
            f"{self.adapter} was lost (noticed while {self._lost_while}), and with it all that was there; "
            "load programs again, by Program.reload() or load(): they get a new device"
        )

    def close(self) -> None:
        """Release the device; programs on it can no longer run."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self._pipelines.clear()
                self._staging.clear()
                self.uploads.clear()
                if not (in_child() or self.is_lost or self._requested.exception()):
                    device, _ = self._requested.result()
                    device.destroy()

    # Buffers ------------------------------------------------------------------------------------

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that are alive."""
        return sum(buffer.size for buffer in self._buffers)

    def create_buffer(self, size: int, label: str, *, uniform: bool = False) -> Buffer:
        """A zero-filled buffer of at least `size` bytes, a multiple of 16."""
        size = self.check_size(size, label, uniform=uniform)
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        if uniform or self.target.is_cpu:  # where kernels take tensors as uniform arrays
            usage |= wgpu.BufferUsage.UNIFORM
        with self.doing(f"allocating {size:,} bytes for {label} on {self.adapter}"):
            buffer = self.handle.create_buffer(label=label, size=size, usage=usage)
        self._buffers.add(buffer)
        return buffer

    def check_size(self, size: int, label: str, *, uniform: bool = False) -> int:
        """How large a buffer of `size` bytes is; raises a DeviceError where the adapter allows none."""
        size = max(16, -(-size // 16) * 16)
        names = ["max-buffer-size"] if uniform else ["max-buffer-size", "max-storage-buffer-binding-size"]
        for name in names:
            if size > self.adapter.limits[name]:
                raise DeviceError(
                    f"{label} needs a buffer of {size:,} bytes; {self.adapter} allows "
                    f"{self.adapter.limits[name]:,} ({name})"
                )
        return size

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back; commands already submitted may still use it."""
        self._buffers.discard(buffer)
        if self.is_usable and not in_child():  # else it goes with the device
            self._freed.add(buffer)
            buffer.destroy()

    def check_there(self, *commands: Command) -> None:
        """Raise a DeviceError where a buffer of a command is freed or mapped, so that it cannot be used."""
        if not (self._freed or self.mapped):
            return
        for buffer in (buffer for command in commands for buffer in command.buffers):
            if buffer in self._freed:
                raise DeviceError(f"{buffer.label!r} was freed before commands that use it were submitted")
            if buffer in self.mapped:
                raise DeviceError(f"{buffer.label!r} is mapped, commands cannot use it meanwhile")

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros, before any command submitted later."""
        with self.lock, self.doing(f"clearing {buffer.label!r}"):
            encoder = self.handle.create_command_encoder()
            encoder.clear_buffer(buffer, 0, buffer.size)
            self.check_there(Copy(buffer, buffer, 0))
            self.finish(encoder)

    def submit(self, command_buffer: Any) -> int:
        """Hand a valid command buffer to the queue; the submission's number. Whoever calls this holds the
        lock and has checked that its buffers are there."""
        try:
            return fatal.submit(self.queue, command_buffer)
        except DeviceLost as error:
            raise self._lost("submitting commands") from error

    def finish(self, encoder: Any) -> None:
        """The same for what one of wgpu's own encoders holds."""
        finished = encoder.finish()  # its handle lives as long as it does
        self.submit(finished._internal)

    def poll(self, *, wait: bool, submission: int | None = None) -> None:
        """Let callbacks happen, after all work or that of one submission where it is waited for."""
        try:
            fatal.poll(self.handle._internal, wait, submission)
        except DeviceLost as error:
            raise self._lost("waiting for results") from error

    def write(self, buffer: Buffer, data: npt.NDArray[np.generic] | bytes, offset: int = 0) -> None:
        """Copy host data into a buffer, before any command submitted later."""
        if isinstance(data, bytes):
            data = np.frombuffer(data, np.uint8)
        size = data.nbytes
        if offset + size > buffer.size:
            raise DeviceError(
                f"{size:,} bytes from {offset:,} on do not fit into the {buffer.size:,} of {buffer.label!r}"
            )
        try:
            if size % 4 == 0 and 0 < size <= _SMALL and data.flags.c_contiguous:
                write_buffer(self.queue, buffer, offset, data, size)  # what every step of a loop writes
                return
            with errors_as_device_error(f"writing {size:,} bytes to {buffer.label!r}"):
                self._write_large(buffer, data, offset)
        except DeviceLost as error:
            raise self._lost(f"writing to {buffer.label!r}") from error

    def _write_large(self, buffer: Buffer, data: npt.NDArray[np.generic], offset: int) -> None:
        """The same for any data, in pieces."""
        flat = data.reshape(-1).view(np.uint8)
        view = memoryview(flat)  # type: ignore[arg-type]  # NumPy's stubs hide the buffer protocol
        whole = len(view) & ~3
        for start in range(0, whole, _UPLOAD_CHUNK):
            chunk = view[start : min(start + _UPLOAD_CHUNK, whole)]
            self.handle.queue.write_buffer(buffer, offset + start, chunk)
        if whole < len(view):  # writes are of whole words
            tail = bytes(view[whole:]).ljust(4, b"\0")
            self.handle.queue.write_buffer(buffer, offset + whole, tail)
        self._written += len(view)
        if self._written > _WRITTEN_MAX:
            self._written = 0
            self.finish(self.handle.create_command_encoder())

    # Reading back -------------------------------------------------------------------------------

    def readback(self, size: int) -> Readback:
        """A place for `size` bytes that commands copy to and the host then reads."""
        size = max(16, -(-size // 16) * 16)
        for index, staging in enumerate(self._staging):
            if size <= staging.size <= 4 * size:
                return Readback(self, self._staging.pop(index))
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        with self.doing(f"allocating {size:,} bytes to read back"):
            return Readback(self, self.handle.create_buffer(label="readback", size=size, usage=usage))

    def recycle(self, staging: Buffer) -> None:
        """Keep an unmapped staging buffer for the next readback."""
        if len(self._staging) < 8 and not self.is_closed:
            self._staging.append(staging)

    def read(self, buffer: Buffer, size: int) -> bytes:
        """A buffer's first `size` bytes, after all commands submitted so far."""
        if size == 0:
            return b""
        with self.lock:
            readback = self.readback(size)
            with self.doing(f"reading {size:,} bytes of {buffer.label!r}"):
                encoder = self.handle.create_command_encoder()
                copy = Copy(buffer, readback.staging, size)
                encoder.copy_buffer_to_buffer(buffer, 0, readback.staging, 0, copy.whole_words)
                self.check_there(copy)
                self.finish(encoder)
            data = readback.peek(0, size)
            readback.release()
            return data

    def wait(self) -> None:
        """Wait for everything submitted so far. A GPU is asked again and again for up to 50 ms, which takes a
        core's time, before the host sleeps; where the CPU is the adapter, it sleeps at once."""
        with self.lock:
            wait_for_all(self, self.wait_seconds)

    # Pipelines ----------------------------------------------------------------------------------

    def pipeline(self, module: Module) -> Any:
        """The compute pipeline of a kernel, compiled once per device."""
        key = module.source, module.bounds_checks
        if key not in self._pipelines:
            self._pipelines[key] = self._compile(module)
        return self._pipelines[key]

    def compile(self, modules: Iterable[Module], meanwhile: Callable[[], None] | None = None) -> None:
        """Compile the kernels that are new, in threads, while `meanwhile` runs on this one; all are ready
        afterwards. Whoever calls this holds the lock."""
        wanted = {(module.source, module.bounds_checks): module for module in modules}
        new = [module for key, module in wanted.items() if key not in self._pipelines]
        together([partial(self.pipeline, module) for module in new], COMPILERS, meanwhile)

    def _compile(self, module: Module) -> Any:
        with self.doing(f"compiling kernel {module.kernel}"):
            shader = compile_shader(
                self.handle, module.kernel.name, module.source, bounds_checks=module.bounds_checks
            )
            return self.handle.create_compute_pipeline(
                label=module.kernel.name,
                layout="auto",
                compute={"module": shader, "entry_point": "main"},
            )


def _request(adapter: AdapterInfo, features: Sequence[str]) -> tuple[Any, Any]:
    """The wgpu device of an adapter, and the raw handle of its queue."""
    with errors_as_device_error(f"opening {adapter}"):
        device = adapter.handle.request_device_sync(required_features=features)
        return device, device.queue._internal


def _forked() -> None:
    Device._is_forked = True


when_forked(_forked)
