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

from pteron.errors import DeviceError, DeviceLost, OutOfMemory
from pteron.gpu.declarations import declared
from pteron.gpu.fork import check_not_forked, when_forked

with declared():
    import wgpu
    from wgpu.backends.wgpu_native import GPUShaderModule, _api, extras
    from wgpu.backends.wgpu_native._api import error_handler, libf
    from wgpu.backends.wgpu_native._ffi import ffi, lib
    from wgpu.backends.wgpu_native._helpers import ErrorSlot as Report

# Errors reach us as exceptions; the log would only repeat them.
logging.getLogger("wgpu").setLevel(logging.CRITICAL)

__all__ = [
    "ERRORS",
    "PENDING",
    "UNMAPPED",
    "Report",
    "address",
    "checked",
    "compile_shader",
    "device_error",
    "entry",
    "errors_as_device_error",
    "ffi",
    "gpu_classes",
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
    check_not_forked()
    _creating.join()
    return wgpu.gpu


def _release_nothing() -> None:
    """wgpu's objects that end in a forked child leave what they stand for to the parent."""
    _api.libf = None


when_forked(_release_nothing)


def gpu_classes() -> list[Any]:
    """wgpu's classes of objects that stand for something in its library."""
    return list(_api.GPUObjectBase.__subclasses__())


_NUMBER = ffi.typeof("uintptr_t")
# What wgpu's buffers say of themselves in `_map_state`: with anything but the first, no command may use them.
UNMAPPED, PENDING = wgpu.BufferMapState.unmapped, wgpu.BufferMapState.pending


# What wgpu's library says, whatever it calls the kind of error.
_OUT_OF_MEMORY = "Not enough memory left"
_LOST = "device is lost"


def device_error(doing: str, message: str) -> DeviceError:
    """The error for what wgpu's library says of something that was being done."""
    kind = OutOfMemory if _OUT_OF_MEMORY in message else DeviceLost if _LOST in message else DeviceError
    return kind(f"{doing}: {message.partition('Caused by:')[2].strip() or message}")


ERRORS = wgpu.GPUError, RuntimeError, ValueError  # that wgpu raises


@contextlib.contextmanager
def errors_as_device_error(doing: str) -> Iterator[None]:
    """What wgpu raises, as a DeviceError that says what was being done."""
    try:
        yield
    except DeviceError:
        raise
    except ERRORS as error:
        raise device_error(doing, str(error)) from error


class _Here(threading.local):
    """One thread's errors, as wgpu's library reports them: the last of these reports gets them."""

    def __init__(self) -> None:
        self.reports = error_handler._get_proxy_stack()
        self.of_writes = Report("writing to a buffer")


_here = _Here()


def checked(report: Any, call: Callable[..., object], *arguments: object) -> None:
    """Let a function make raw calls of the library. What these report on this thread is raised as a
    DeviceError, of several errors the last, which names its cause; and it stays in the report."""
    report.message = None
    reports = _here.reports
    reports.append(report)
    try:
        call(*arguments)
    finally:
        reports.pop()
    if report.message is not None:
        raise device_error(report.name, report.message)


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
    """Write whole words that fit, straight through the library: a third of the cost of wgpu's own. The data
    lie in one piece."""
    report, reports = _here.of_writes, _here.reports
    report.message = None
    reports.append(report)
    try:
        lib.wgpuQueueWriteBuffer(queue, buffer._internal, offset, ffi.from_buffer(data), size)
    finally:
        reports.pop()
    if report.message is not None:
        raise device_error(report.name, report.message)
