"""Commands -> a command buffer. The C library of `native/` records it or, if the package has no library for
this platform, Python does. Both call the same functions of a WebGPU library in the same order; Python enters
the C library only once per command buffer. The C library also converts f32 to f16 and back.

Environment variable PTERON_NATIVE: 0 selects Python, a path selects another library.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from pteron.errors import DeviceError
from pteron.gpu.commands import Command, Copy, Replay
from pteron.gpu.library import Library, Report, address

NATIVE_VARIABLE = "PTERON_NATIVE"
_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PACKAGED = Path(__file__).with_name(f"libpteron_encode{_SUFFIX}")
_VERSION = 5  # of the structures and signatures in native/encode.c
_COMMAND = struct.Struct("8Q")  # `Command` in native/encode.c
# `Functions` in native/encode.c
_FUNCTIONS = (
    "wgpuDeviceCreateCommandEncoder",
    "wgpuCommandEncoderBeginComputePass",
    "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup",
    "wgpuComputePassEncoderDispatchWorkgroups",
    "wgpuComputePassEncoderEnd",
    "wgpuComputePassEncoderRelease",
    "wgpuCommandEncoderCopyBufferToBuffer",
    "wgpuCommandEncoderFinish",
    "wgpuCommandEncoderRelease",
    None,  # Library.submit_function
    "wgpuCommandBufferRelease",
)
_RECORD = "WGPUCommandBuffer (*)(void *, WGPUDevice, char *, size_t)"  # pteron_record
_SUBMIT = "uint64_t (*)(void *, WGPUDevice, WGPUQueue, char *, size_t, uint32_t *)"  # pteron_submit

Converter: TypeAlias = Callable[[int, int, int], None]

# A command, and the descriptor (or NULL) of the pass that a replay opens if none is open.
Operation: TypeAlias = tuple[Command, Any]


class PythonEncoder:
    """Makes command buffers by calling wgpu for every launch. wgpu reports errors to the current `Report`;
    after an error the command buffer is invalid and must not be submitted."""

    def __init__(self, library: Library, reason: str) -> None:
        self.description = f"Python ({reason})"
        self._library = library

    def pack(self, operations: Sequence[Operation]) -> Any:
        """Convert operations to the form that `record` and `submit` take; valid while the operations live."""
        return operations

    def record(self, device: Any, packed: Any) -> Any:
        """A command buffer. Consecutive replays share a compute pass."""
        library = self._library
        encoder = library.begin_encoder(device)
        compute: Any = None
        for command, descriptor in packed:
            if isinstance(command, Replay):
                if compute is None:
                    compute = library.begin_pass(encoder, descriptor)
                library.encode_launches(compute, command.launches)
            else:
                if compute is not None:  # a copy cannot be inside a pass
                    library.lib.wgpuComputePassEncoderEnd(compute)
                    compute = None
                _copy(library, encoder, command)
        if compute is not None:
            library.lib.wgpuComputePassEncoderEnd(compute)
        return library.finish(encoder)

    def submit(self, device: Any, queue: Any, packed: Any, report: Report) -> int:
        """Record and submit. Returns the submission's number. Nothing is submitted if the report has an
        error."""
        recorded = self.record(device, packed)
        return 0 if report.message else self._library.submit(queue, recorded)


def _copy(library: Library, encoder: Any, copy: Copy) -> None:
    source, target = copy.source._internal, copy.target._internal
    library.lib.wgpuCommandEncoderCopyBufferToBuffer(
        encoder, source, copy.source_offset, target, copy.target_offset, copy.whole_words
    )


class NativeEncoder:
    """The same in one call of the C library."""

    def __init__(self, library: Library, path: Path) -> None:
        self.description = f"native ({path.name})"
        encoding = _load(path)
        self._encoding = encoding  # keeps it loaded; calls go through cffi, which costs less than ctypes
        self._library = library
        ffi, lib = library.ffi, library.lib
        self._record = ffi.cast(_RECORD, _address(encoding.pteron_record))
        self._submit = ffi.cast(_SUBMIT, _address(encoding.pteron_submit))
        names = [name or library.submit_function for name in _FUNCTIONS]
        pointers = [ffi.addressof(lib, name) if name else ffi.NULL for name in names]
        self._functions = ffi.new("void *[]", pointers)

    def pack(self, operations: Sequence[Operation]) -> Any:
        packed = [_pack(command, descriptor) for command, descriptor in operations]
        return b"".join(packed), len(packed)

    def record(self, device: Any, packed: Any) -> Any:
        recorded = self._record(self._functions, device, *packed)
        return self._library.ffi.gc(recorded, self._library.lib.wgpuCommandBufferRelease)

    def submit(self, device: Any, queue: Any, packed: Any, report: Report) -> int:
        if self._library.submit_function:
            return int(self._submit(self._functions, device, queue, *packed, report.failed))
        return self._library.submit(queue, self.record(device, packed))


def _address(function: Any) -> int:
    """The address of a ctypes function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _pack(command: Command, descriptor: Any) -> bytes:
    """A command as the C library reads it; the command keeps alive what the pointers point to."""
    if isinstance(command, Replay):
        opened_with = address(descriptor) if descriptor else 0
        return _COMMAND.pack(command.packed, len(command.launches), opened_with, 0, 0, 0, 0, 0)
    source, target = address(command.source._internal), address(command.target._internal)
    return _COMMAND.pack(
        0, 0, 0, source, target, command.source_offset, command.target_offset, command.whole_words
    )


CommandEncoder: TypeAlias = PythonEncoder | NativeEncoder


def _load(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    version = found.pteron_encode_version()
    if version != _VERSION:
        raise OSError(f"{path} has version {version}, expected {_VERSION}")
    return found


def _wanted() -> tuple[str, Path]:
    """What PTERON_NATIVE says, and the library's path."""
    wanted = os.environ.get(NATIVE_VARIABLE, "")
    return wanted, Path(wanted).absolute() if wanted not in ("", "1") else PACKAGED


@cache
def converters() -> tuple[Converter, Converter] | None:
    """f32 -> f16 and f16 -> f32 by the C library: functions of the addresses of source and target, and of the
    number of elements. None without the library."""
    wanted, path = _wanted()
    try:
        library = _load(path) if wanted != "0" else None
    except (OSError, AttributeError):
        return None
    if library is None:
        return None
    found = library.pteron_to_halves, library.pteron_from_halves
    for function in found:
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
    return found


@cache
def encoder(library: Library) -> CommandEncoder:
    """The encoder for a library in this process."""
    wanted, path = _wanted()
    if wanted == "0":
        return PythonEncoder(library, f"{NATIVE_VARIABLE}=0")
    try:
        return NativeEncoder(library, path)
    except (OSError, AttributeError) as error:  # missing, for another machine, or another library
        if wanted:
            raise DeviceError(f"{NATIVE_VARIABLE}={wanted}: {error}") from error
        return PythonEncoder(
            library, f"{path.name} cannot be loaded" if path.exists() else "the package has no C library"
        )
