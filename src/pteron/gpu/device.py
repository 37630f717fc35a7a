"""A device: buffers, pipelines and the queue of one adapter."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo, choose
from pteron.gpu.native import compile_shader, errors_as_device_error, wgpu, write_buffer
from pteron.gpu.readback import Readback, wait_for_all
from pteron.gpu.working import together
from pteron.ops import Target, Weight
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
    _opening = threading.Lock()

    def __init__(self, adapter: AdapterInfo) -> None:
        self.adapter = adapter
        self.lock = threading.RLock()  # one call at a time: wgpu's objects are shared by all of them
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
        self.target = Target(
            shader_f16="shader-f16" in features,
            subgroup_size=adapter.subgroup_size if "subgroup" in features else 0,
            packed_dots=adapter.packed_dots,
            is_cpu=adapter.is_cpu,
            workgroups_max=adapter.limits["max-compute-workgroups-per-dimension"],
            invocations_max=adapter.limits["max-compute-invocations-per-workgroup"],
            workgroup_bytes_max=adapter.limits["max-compute-workgroup-storage-size"],
            binding_bytes_max=adapter.limits["max-storage-buffer-binding-size"],
            buffers_max=adapter.limits["max-storage-buffers-per-shader-stage"],
            uniform_bytes_max=adapter.limits["max-uniform-buffer-binding-size"],
            uniform_alignment=adapter.limits["min-uniform-buffer-offset-alignment"],
            loop_max=adapter.loop_max,
            broadcasts=adapter.is_cpu and "subgroup" in features,
        )
        # Where the CPU is the adapter, asking would take its time.
        self.spin_seconds = 0.0 if adapter.is_cpu else _SPIN_SECONDS
        self.wait_seconds = 0.0 if adapter.is_cpu else _WAIT_SECONDS
        self._buffers: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self.is_closed = False

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
        adapter = choose(device)
        key = f"{adapter.index} {adapter.backend} {adapter.name}"
        with cls._opening:
            if key not in cls._shared or not cls._shared[key].is_usable:
                cls._shared[key] = cls(adapter)
            return cls._shared[key]

    def __repr__(self) -> str:
        return f"<pteron.Device {self.adapter}{', closed' if self.is_closed else ''}>"

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
        if self.is_closed:
            raise DeviceError(f"the device {self.adapter} is closed")
        if self._device is None:
            device, self._queue = self._requested.result()
            self._device = device  # last: other threads look whether it is there

    @property
    def is_usable(self) -> bool:
        """Whether it is open, or about to be."""
        is_failed = self._requested.done() and self._requested.exception() is not None
        return not self.is_closed and not is_failed

    def close(self) -> None:
        """Release the device; programs on it can no longer run."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self._pipelines.clear()
                self._staging.clear()
                self.uploads.clear()
                if self._requested.exception() is None:
                    device, _ = self._requested.result()
                    device.destroy()

    # Buffers ------------------------------------------------------------------------------------

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that are alive."""
        return sum(buffer.size for buffer in self._buffers)

    def create_buffer(self, size: int, label: str, *, uniform: bool = False) -> Buffer:
        """A zero-filled buffer of at least `size` bytes, a multiple of 16."""
        size = max(16, -(-size // 16) * 16)
        limit = self.adapter.limits["max-buffer-size"] if uniform else self.target.binding_bytes_max
        if size > limit:
            raise DeviceError(f"{label} needs a buffer of {size:,} bytes; {self.adapter} allows {limit:,}")
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        if uniform or self.target.is_cpu:  # where kernels take tensors as uniform arrays
            usage |= wgpu.BufferUsage.UNIFORM
        with errors_as_device_error(f"allocating {size:,} bytes for {label} on {self.adapter}"):
            buffer = self.handle.create_buffer(label=label, size=size, usage=usage)
        self._buffers.add(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back; commands already submitted may still use it."""
        self._buffers.discard(buffer)
        if not self.is_closed:
            buffer.destroy()

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros, before any command submitted later."""
        encoder = self.handle.create_command_encoder()
        encoder.clear_buffer(buffer, 0, buffer.size)
        self.handle.queue.submit([encoder.finish()])

    def write(self, buffer: Buffer, data: npt.NDArray[np.generic] | bytes, offset: int = 0) -> None:
        """Copy host data into a buffer, before any command submitted later."""
        if isinstance(data, bytes):
            data = np.frombuffer(data, np.uint8)
        size = data.nbytes
        if size % 4 == 0 and 0 < size <= min(_SMALL, buffer.size - offset) and data.flags.c_contiguous:
            write_buffer(self.queue, buffer, offset, data, size)  # what every step of a loop writes
            return
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
            self.handle.queue.submit([])

    # Reading back -------------------------------------------------------------------------------

    def readback(self, size: int) -> Readback:
        """A place for `size` bytes that commands copy to and the host then reads."""
        size = max(16, -(-size // 16) * 16)
        for index, staging in enumerate(self._staging):
            if size <= staging.size <= 4 * size:
                return Readback(self, self._staging.pop(index))
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        with errors_as_device_error(f"allocating {size:,} bytes to read back"):
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
            encoder = self.handle.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, 0, readback.staging, 0, -(-size // 4) * 4)
            self.handle.queue.submit([encoder.finish()])
            data = readback.peek(0, size)
            readback.release()
            return data

    def wait(self) -> None:
        """Wait for everything submitted so far. A GPU is asked again and again for up to 50 ms, which takes a
        core's time, before the host sleeps; where the CPU is the adapter, it sleeps at once."""
        with self.lock:
            wait_for_all(self.handle._internal, self.queue, self.wait_seconds)

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
        with errors_as_device_error(f"compiling kernel {module.kernel}"):
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
