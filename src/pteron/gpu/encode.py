"""Commands -> a finished command buffer, by the C library of `native/` where the package has one for this
platform, else from Python. Both make the same calls in the same order; the library makes all of them in one.
It also survives calls of wgpu's library that would end the process, but for Windows.

The environment variable PTERON_NATIVE=0 keeps to Python, and a path there names another library.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from pteron.errors import DeviceError
from pteron.gpu.commands import Command, Copy, Replay
from pteron.gpu.handles import begin, finish, finish_by, owned
from pteron.gpu.native import address, ffi, lib

NATIVE_VARIABLE = "PTERON_NATIVE"
_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PACKAGED = Path(__file__).with_name(f"libpteron_encode{_SUFFIX}")
_VERSION = 3  # of the structures and signatures in native/encode.c
_COMMAND = struct.Struct("8Q")  # `Command` there
# `Functions` there.
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
)

_BEGIN_PASS = lib.wgpuCommandEncoderBeginComputePass

_RECORD = "WGPUCommandBuffer (*)(void *, WGPUDevice, char *, size_t)"  # pteron_record
_GUARDED = "uintptr_t (*)(void *, void *, uintptr_t, void *)"  # pteron_guarded
# A function of wgpu's library, and a handle, a number and a pointer that it takes -> what it gives, or FAILED
# where it would have ended the process.
Guarded: TypeAlias = Callable[[Any, Any, int, Any], int]
FAILED = 2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1

# A command, and the descriptor (or NULL) of the pass that a replay begins where none is open.
Operation: TypeAlias = tuple[Command, Any]


class Encoder(Protocol):
    """Makes command buffers. Errors arrive where wgpu reports them; with any, the result is invalid."""

    @property
    def description(self) -> str:
        """For people: which encoder it is, and why."""

    def pack(self, operations: Sequence[Operation]) -> Any:
        """Operations as `record` takes them, any number of times while what they name is there."""

    def record(self, device: Any, packed: Any, finished: list[Any]) -> None:
        """Let a list get a command buffer of wgpu's library, released with the last reference to it. Replays
        that follow one another share a pass."""

    guarded: Guarded | None

    def guard(self) -> None:
        """Be ready to survive, whoever handles the signal of an abort by now."""


class PythonEncoder:
    """Calls wgpu's library for every step."""

    guarded: Guarded | None = None

    def __init__(self, reason: str) -> None:
        self.description = f"Python ({reason})"

    def pack(self, operations: Sequence[Operation]) -> Any:
        return operations

    def record(self, device: Any, packed: Any, finished: list[Any]) -> None:
        encoder = begin(device)
        compute: Any = None
        for command, descriptor in packed:
            if isinstance(command, Replay):
                if compute is None:
                    begun_with = encoder, descriptor
                    compute = owned(_BEGIN_PASS, begun_with, lib.wgpuComputePassEncoderRelease)
                _encode(compute, command)
            else:
                if compute is not None:  # copies cannot stand inside a pass
                    lib.wgpuComputePassEncoderEnd(compute)
                    compute = None
                _copy(encoder, command)
        if compute is not None:
            lib.wgpuComputePassEncoderEnd(compute)
        finish(encoder, finished)

    def guard(self) -> None: ...


def _encode(compute: Any, replay: Replay) -> None:
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    null = ffi.NULL
    for pipeline, group, x, y, z in replay.steps:
        set_pipeline(compute, pipeline)
        set_bind_group(compute, 0, group, 0, null)
        dispatch(compute, x, y, z)


def _copy(encoder: Any, copy: Copy) -> None:
    source, target = copy.source._internal, copy.target._internal
    lib.wgpuCommandEncoderCopyBufferToBuffer(
        encoder, source, copy.source_offset, target, copy.target_offset, copy.whole_words
    )


class NativeEncoder(PythonEncoder):
    """Hands the whole list to the C library."""

    def __init__(self, path: Path) -> None:
        self.description = f"native ({path.name})"
        library = ctypes.CDLL(str(path))
        version = library.pteron_encode_version()
        if version != _VERSION:
            raise OSError(f"{path} is of version {version}, not {_VERSION}")
        self._library = library  # functions of it are called by their addresses, as cffi's: they cost less
        self._record = ffi.cast(_RECORD, _address(library.pteron_record))
        self._guard = getattr(library, "pteron_guard", None)  # there is none on Windows
        if hasattr(library, "pteron_guarded"):
            self.guarded = ffi.cast(_GUARDED, _address(library.pteron_guarded))
        self._functions = ffi.new("void *[]", [ffi.addressof(lib, name) for name in _FUNCTIONS])

    def pack(self, operations: Sequence[Operation]) -> Any:
        packed = [_pack(command, descriptor) for command, descriptor in operations]
        return b"".join(packed), len(packed)

    def record(self, device: Any, packed: Any, finished: list[Any]) -> None:
        finish_by(self._record, (self._functions, device, *packed), finished)

    def guard(self) -> None:
        if self._guard is not None:
            self._guard()


def _address(function: Any) -> int:
    """Where a function of ctypes' lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _pack(command: Command, descriptor: Any) -> bytes:
    """A command as the library reads it; what it points at is held by the command."""
    if isinstance(command, Replay):
        begun_with = address(descriptor) if descriptor else 0
        return _COMMAND.pack(command.packed, len(command.steps), begun_with, 0, 0, 0, 0, 0)
    source, target = address(command.source._internal), address(command.target._internal)
    return _COMMAND.pack(
        0, 0, 0, source, target, command.source_offset, command.target_offset, command.whole_words
    )


@cache
def encoder() -> Encoder:
    """The encoder of this process."""
    wanted = os.environ.get(NATIVE_VARIABLE, "")
    if wanted == "0":
        return PythonEncoder(f"{NATIVE_VARIABLE}=0")
    path = Path(wanted).absolute() if wanted not in ("", "1") else PACKAGED
    try:
        return NativeEncoder(path)
    except (OSError, AttributeError) as error:  # not there, for another machine, or another library
        if wanted:
            raise DeviceError(f"{NATIVE_VARIABLE}={wanted}: {error}") from error
        return PythonEncoder(
            f"{path.name} cannot be loaded" if path.exists() else "no library for this platform"
        )
