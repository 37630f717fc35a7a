"""wgpu, imported once and quietly, with the raw functions of its native library for the hot path."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Mesa's device-select layer prints warnings where there is no desktop session; nothing needs it here.
os.environ.setdefault("NODEVICE_SELECT", "1")

from pteron.errors import DeviceError
from pteron.gpu.declarations import declared

with declared():
    import wgpu
    from wgpu.backends.wgpu_native import GPUShaderModule, extras
    from wgpu.backends.wgpu_native._api import error_handler, libf
    from wgpu.backends.wgpu_native._ffi import ffi, lib

# Errors reach us as exceptions; the log would only repeat them.
logging.getLogger("wgpu").setLevel(logging.CRITICAL)

__all__ = [
    "address",
    "checked",
    "compile_shader",
    "entry",
    "errors_as_device_error",
    "ffi",
    "lib",
    "wgpu",
    "write_buffer",
]


def _create_instance() -> None:
    """Load the drivers. On Linux, probing OpenGL would be slow and noisy, and the default flags would add a
    validation dispatch to indirect ones; where wgpu was in use before, it stays as it is."""
    if sys.platform == "linux":
        with contextlib.suppress(RuntimeError):
            extras.set_instance_extras(backends=["Vulkan"], flags=["Empty"])


# Drivers take a quarter of a second to load: Python imports the rest meanwhile.
_creating = threading.Thread(target=_create_instance, name="pteron-drivers", daemon=True)
_creating.start()


def entry() -> Any:
    """wgpu's entry point, its instance created."""
    _creating.join()
    return wgpu.gpu


_NUMBER = ffi.typeof("uintptr_t")


@contextlib.contextmanager
def errors_as_device_error(doing: str) -> Iterator[None]:
    """What wgpu raises, as a DeviceError that says what was being done."""
    try:
        yield
    except (wgpu.GPUError, RuntimeError, ValueError) as error:
        raise DeviceError(f"{doing}: {error}") from error


def checked(doing: str, call: Callable[..., Any], *arguments: object) -> Any:
    """What a function gives that makes raw calls of the library. What these report on this thread is raised
    as a DeviceError: of several errors the last, which names its cause."""
    error_handler.capture(doing)
    try:
        result = call(*arguments)
    finally:
        error = error_handler.release(doing)
    if error is not None:
        raise DeviceError(f"{doing}: {error[1]}")
    return result


def address(pointer: Any) -> int:
    """Where a pointer points, as a number."""
    return int(ffi.cast(_NUMBER, pointer))


def compile_shader(device: Any, label: str, code: str, *, bounds_checks: bool) -> Any:
    """A shader module without wgpu's guard against endless loops, which keeps drivers from unrolling any;
    without bounds checks too where the kernel is known to stay inside its buffers."""
    text, name = ffi.new("char[]", code.encode()), ffi.new("char[]", label.encode())
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = text, len(text) - 1
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name, len(name) - 1
    checks = lib.WGPUShaderRuntimeChecks_BoundsChecks if bounds_checks else 0
    handle = libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
    return GPUShaderModule(label, handle, device)


def write_buffer(queue: Any, buffer: Any, offset: int, data: Any, size: int) -> None:
    """Write whole words that fit, straight through the library: a quarter of the cost of wgpu's own. The data
    lie in one piece."""
    lib.wgpuQueueWriteBuffer(queue, buffer._internal, offset, ffi.from_buffer(data), size)
