"""Buffers of a device: create, write, read back, free."""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.commands import Copy
from pteron.gpu.library import BufferUsage
from pteron.gpu.open_device import OpenDevice
from pteron.gpu.readback import Readback, wait_for_all
from pteron.gpu.submit import Commands, clear, submit

Buffer: TypeAlias = Any  # a wgpu buffer; opaque outside this package
_UPLOAD_CHUNK = 1 << 24
_SMALL = 1 << 16
_WRITTEN_MAX = 1 << 27  # bytes: wgpu keeps written data in host memory until the next submission
_WAIT_SECONDS = 0.05  # polling time of `wait`, which returns 0.1 to 0.3 ms sooner by it


class Buffers(OpenDevice):
    """An open device and its buffers."""

    def __init__(self, adapter: AdapterInfo) -> None:
        super().__init__(adapter)
        self.wait_seconds = 0.0 if adapter.is_cpu else _WAIT_SECONDS
        self._buffers: WeakSet[Buffer] = WeakSet()
        self._written = 0  # bytes since the last submission

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all live buffers."""
        return sum(buffer.size for buffer in self._buffers)

    def create_buffer(self, size: int, label: str, *, uniform: bool = False) -> Buffer:
        """A zero-filled buffer of at least `size` bytes, a multiple of 16."""
        size = self.check_size(size, label, uniform=uniform)
        # UNIFORM: parameters, and tensors that kernels for software adapters read as uniform arrays.
        usage = BufferUsage.STORAGE | BufferUsage.UNIFORM | BufferUsage.COPY_DST | BufferUsage.COPY_SRC
        device = self.handle
        try:
            buffer = device.create_buffer(label=label, size=size, usage=usage)
        except self.library.errors as error:
            action = f"allocating {size:,} bytes for {label} on {self.adapter}"
            raise self.translate_error(action, error) from error
        self._buffers.add(buffer)
        return buffer

    def check_size(self, size: int, label: str, *, uniform: bool = False) -> int:
        """`size` rounded up to a buffer size; a DeviceError if the adapter's limits are below it."""
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
        """Free a buffer's memory; commands already submitted may still use it."""
        self._buffers.discard(buffer)
        super().free(buffer)

    def clear(self, buffer: Buffer, start: int = 0, size: int | None = None) -> None:
        """Fill a buffer, or a part of it, with zeros, before any command submitted later."""
        clear(self, buffer, start, buffer.size - start if size is None else size)

    def write(self, buffer: Buffer, data: npt.NDArray[np.generic] | bytes, offset: int = 0) -> None:
        """Copy host data into a buffer, before any command submitted later."""
        if isinstance(data, bytes):
            data = np.frombuffer(data, np.uint8)
        size = data.nbytes
        if offset + size > buffer.size:
            raise DeviceError(
                f"{size:,} bytes at offset {offset:,} do not fit into the {buffer.size:,} of {buffer.label!r}"
            )
        if not self.is_open:
            self.check_open()
        try:
            if size % 4 == 0 and 0 < size <= _SMALL and data.flags.c_contiguous:
                # The hot path: parameters and inputs.
                self.library.write_buffer(self._queue, buffer, offset, data, size)
            else:
                self._write_large(buffer, data, offset)
        except DeviceLost as error:
            raise self.mark_lost(f"writing {size:,} bytes to {buffer.label!r}") from error

    def _write_large(self, buffer: Buffer, data: npt.NDArray[np.generic], offset: int) -> None:
        """`write` for any data, in chunks."""
        flat = data.reshape(-1).view(np.uint8)
        whole = len(flat) & ~3
        for start in range(0, whole, _UPLOAD_CHUNK):
            chunk = flat[start : min(start + _UPLOAD_CHUNK, whole)]
            self.library.write_buffer(self._queue, buffer, offset + start, chunk, len(chunk))
        if whole < len(flat):  # writes are of whole words
            tail = np.zeros(4, np.uint8)
            tail[: len(flat) - whole] = flat[whole:]
            self.library.write_buffer(self._queue, buffer, offset + whole, tail, 4)
        self._written += len(flat)
        if self._written > _WRITTEN_MAX:
            self._written = 0
            Commands(self, []).submit_locked()  # in a worker thread, whose waiter holds the lock

    def readback(self, size: int) -> Readback:
        """A staging buffer of `size` bytes. Commands copy into it, and the host reads it."""
        size = max(16, -(-size // 16) * 16)
        for index, (_, available) in enumerate(self._staging):
            if size <= available <= 4 * size:
                return Readback(self, *self._staging.pop(index))
        usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST
        with self.translate_errors(f"allocating {size:,} bytes to read back"):
            return Readback(self, self.handle.create_buffer(label="readback", size=size, usage=usage), size)

    def read(self, buffer: Buffer, size: int, start: int = 0) -> bytes:
        """`size` bytes of a buffer from `start`, a multiple of 4, after all commands submitted so far."""
        if size == 0:
            return b""
        with self.lock:
            readback, submission = self.begin_read(buffer, size, start)
            data = readback.peek(0, size, submission)
            readback.release()
            return data

    def begin_read(self, buffer: Buffer, size: int, start: int = 0) -> tuple[Readback, int]:
        """`read` without waiting: the transfer, and the submission to wait for."""
        with self.lock:
            readback = self.readback(size)
            return readback, submit(self, [Copy(buffer, readback.staging, size, source_offset=start)])

    def wait(self) -> None:
        """Wait for all submitted work. On a GPU this polls for up to 50 ms, which uses a CPU core, before it
        sleeps; on a software adapter it sleeps at once."""
        with self.lock:
            wait_for_all(self, self.wait_seconds)
