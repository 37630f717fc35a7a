"""What `gpu` needs of a WebGPU library: wgpu-native (wgpu_native.py) or Dawn (dawn.py).

Both have the C functions of webgpu.h, and Python packages with the same classes. `ffi` and `lib` are those
of the library: handles and structures of one cannot be passed to the other. Where the libraries differ,
`Library` has a method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Any, ClassVar

import cffi

from pteron.errors import DeviceError, DeviceLost, OutOfMemory

if TYPE_CHECKING:
    from pteron.wgsl import Module


class BufferUsage(IntFlag):
    """As WebGPU numbers them."""

    MAP_READ = 1
    COPY_SRC = 4
    COPY_DST = 8
    UNIFORM = 64
    STORAGE = 128
    QUERY_RESOLVE = 512


UNMAPPED, PENDING = "unmapped", "pending"  # of a buffer's `_map_state`; commands only use unmapped buffers
FFI = cffi.FFI()  # for pointers of any library
_NUMBER = FFI.typeof("uintptr_t")


def address(pointer: Any) -> int:
    """A pointer as a number."""
    return int(FFI.cast(_NUMBER, pointer))


class Report:
    """Receives the last error of raw calls. `failed` is a flag for C code, set when there is an error."""

    name: str
    message: str | None
    failed: Any


class Library(ABC):
    """A WebGPU library."""

    name: ClassVar[str]
    distribution: ClassVar[str]  # of the Python package
    out_of_memory: ClassVar[str]  # substrings of messages: error types do not distinguish these cases
    lost: ClassVar[str]
    submit_function: ClassVar[str | None]  # a C function that submits and returns the submission's number
    encodes_at_submission: ClassVar[bool]  # recorded commands reach the driver only then
    # Requested if available: the library's name -> the name in AdapterInfo.
    features: ClassVar[dict[str, str]]

    def __init__(self, package: Any, ffi: Any, lib: Any) -> None:
        self.package = package  # wgpu, or a package with the same classes
        self.ffi = ffi
        self.lib = lib
        self.errors = package.GPUError, RuntimeError, ValueError  # the types that the package raises
        self._command_buffers = ffi.typeof("WGPUCommandBuffer[]")
        self._bind_group = ffi.typeof("WGPUBindGroupDescriptor *")
        self._bind_group_entries = ffi.typeof("WGPUBindGroupEntry[]")

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @abstractmethod
    def entry(self) -> Any:
        """The package's entry point, once the drivers are loaded."""

    @abstractmethod
    def matrices(self, handle: Any) -> tuple[str, ...]:
        """The products of matrices that subgroups of the adapter can compute, as Target.matrices has them."""

    @abstractmethod
    def request_device(self, adapter: Any, features: list[str], limits: Mapping[str, int]) -> Any:
        """The package's device of one of its adapters, with some of its features and its limits."""

    @abstractmethod
    def compile_shader(self, device: Any, module: Module) -> Any:
        """The package's shader module of a kernel, without bounds checks if the kernel is proven."""

    @abstractmethod
    def report(self, name: str) -> Report:
        """A report of errors; `name` says what the calls do."""

    @abstractmethod
    def checked(self, report: Report, call: Callable[..., Any], *arguments: object) -> Any:
        """Call a function that makes raw calls of this library, and return its result. If the calls report
        errors on this thread, the last one is raised as a DeviceError."""

    @abstractmethod
    def write_buffer(self, queue: Any, buffer: Any, offset: int, data: Any, size: int) -> None:
        """Write whole words of contiguous data. The raw call costs a third of the package's own method."""

    @abstractmethod
    def submit(self, queue: Any, command_buffer: Any) -> int:
        """Submit a valid command buffer; the submission's number."""

    @abstractmethod
    def poll(self, device: Any, queue: Any, wait: bool, submission: int | None) -> None:
        """Run callbacks; with `wait`, after all submitted work or one submission is done."""

    @abstractmethod
    def timestamp_nanoseconds(self, queue: Any) -> float:
        """The unit of timestamps."""

    def error(self, action: str, message: str) -> DeviceError:
        """The DeviceError for a message of the library; `action` says what the device was doing."""
        kind = (
            OutOfMemory
            if self.out_of_memory in message
            else DeviceLost
            if self.lost in message
            else DeviceError
        )
        return kind(f"{action}: {message.partition('Caused by:')[2].strip() or message}")

    def begin_encoder(self, device: Any) -> Any:
        """A command encoder."""
        begun = self.lib.wgpuDeviceCreateCommandEncoder(device, self.ffi.NULL)
        return self.ffi.gc(begun, self.lib.wgpuCommandEncoderRelease)

    def begin_pass(self, encoder: Any, descriptor: Any) -> Any:
        """A compute pass of a command encoder."""
        begun = self.lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
        return self.ffi.gc(begun, self.lib.wgpuComputePassEncoderRelease)

    def finish(self, encoder: Any) -> Any:
        """The command buffer of a command encoder."""
        finished = self.lib.wgpuCommandEncoderFinish(encoder, self.ffi.NULL)
        return self.ffi.gc(finished, self.lib.wgpuCommandBufferRelease)

    def bind_group(self, device: Any, pipeline: Any, entries: Sequence[tuple[int, Any, int, int]]) -> Any:
        """A bind group of a pipeline; an entry is (binding, buffer, offset, size). The raw calls cost a tenth
        of the package's own methods, and a plan has hundreds of groups."""
        ffi, lib = self.ffi, self.lib
        layout = ffi.gc(
            lib.wgpuComputePipelineGetBindGroupLayout(pipeline, 0), lib.wgpuBindGroupLayoutRelease
        )
        given = [
            {"binding": binding, "buffer": buffer, "offset": offset, "size": size}
            for binding, buffer, offset, size in entries
        ]
        listed = ffi.new(self._bind_group_entries, given)
        descriptor = ffi.new(
            self._bind_group, {"layout": layout, "entryCount": len(entries), "entries": listed}
        )
        return ffi.gc(lib.wgpuDeviceCreateBindGroup(device, descriptor), lib.wgpuBindGroupRelease)

    def encode_launches(self, compute: Any, launches: Sequence[tuple[Any, Any, int, int, int]]) -> None:
        """Encode launches (pipeline, bind group, grid) into a compute pass."""
        set_pipeline = self.lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = self.lib.wgpuComputePassEncoderSetBindGroup
        dispatch = self.lib.wgpuComputePassEncoderDispatchWorkgroups
        null = self.ffi.NULL
        for pipeline, group, x, y, z in launches:
            set_pipeline(compute, pipeline)
            set_bind_group(compute, 0, group, 0, null)
            dispatch(compute, x, y, z)
