"""Imports wgpu, with the raw functions of wgpu-native that the hot path calls directly."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

# Mesa's device-select layer prints warnings without a desktop session, and is not needed.
os.environ.setdefault("NODEVICE_SELECT", "1")

from pteron.errors import DeviceError, DeviceLost, OutOfMemory
from pteron.gpu.declarations import declared
from pteron.gpu.fork import check_not_forked, when_forked

with declared():
    import wgpu
    from wgpu.backends.wgpu_native import GPUShaderModule, _api, extras
    from wgpu.backends.wgpu_native._api import error_handler, libf
    from wgpu.backends.wgpu_native._ffi import ffi, lib
    from wgpu.backends.wgpu_native._helpers import ErrorSlot

# Errors are raised as exceptions; the log would only repeat them.
logging.getLogger("wgpu").setLevel(logging.CRITICAL)

__all__ = ["ffi", "lib", "wgpu"]  # re-exported


def _create_instance() -> None:
    """Load the drivers. On Linux only Vulkan is loaded: probing OpenGL is slow and prints warnings. The flags
    are empty because the default flags add a validation dispatch to every indirect dispatch. An existing
    instance is kept."""
    if sys.platform == "linux":
        with contextlib.suppress(RuntimeError):
            extras.set_instance_extras(backends=["Vulkan"], flags=["Empty"])


# Loading drivers takes a quarter of a second; Python imports the other modules during that time.
_creating = threading.Thread(target=_create_instance, name="pteron-drivers", daemon=True)
_creating.start()


def entry() -> Any:
    """wgpu's entry point, once the drivers are loaded."""
    check_not_forked()
    _creating.join()
    return wgpu.gpu


def _release_nothing() -> None:
    """Disable wgpu's finalizers in a forked child: they would release objects of the parent."""
    _api.libf = None


when_forked(_release_nothing)


_NUMBER = ffi.typeof("uintptr_t")
# Values of `_map_state` of wgpu's buffers; commands may only use an unmapped buffer.
UNMAPPED, PENDING = wgpu.BufferMapState.unmapped, wgpu.BufferMapState.pending


# Substrings of wgpu-native's messages: its error types do not distinguish these cases.
_OUT_OF_MEMORY = "Not enough memory left"
_LOST = "device is lost"


def device_error(action: str, message: str) -> DeviceError:
    """The DeviceError for a message of wgpu-native; `action` says what the device was doing."""
    kind = OutOfMemory if _OUT_OF_MEMORY in message else DeviceLost if _LOST in message else DeviceError
    return kind(f"{action}: {message.partition('Caused by:')[2].strip() or message}")


ERRORS = wgpu.GPUError, RuntimeError, ValueError  # the types that wgpu raises


class Report(ErrorSlot):  # type: ignore[misc]  # wgpu has no types
    """Receives the last error that wgpu-native reports on a thread. `failed` is a flag for C code, set when
    there is an error."""

    def __init__(self, name: str) -> None:
        self.failed = ffi.new("uint32_t *")
        super().__init__(name)

    @property
    def message(self) -> str | None:
        return self._message

    @message.setter
    def message(self, message: str | None) -> None:
        self._message = message
        self.failed[0] = message is not None


class _Thread(threading.local):
    """A thread's stack of reports. wgpu-native's errors go to the report on top."""

    def __init__(self) -> None:
        self.reports = error_handler._get_proxy_stack()
        self.write_report = Report("writing to a buffer")


_thread = _Thread()


def checked(report: Report, call: Callable[..., Any], *arguments: object) -> Any:
    """Call a function that makes raw wgpu-native calls, and return its result. If the calls report errors on
    this thread, the last one, which names the cause, is raised as a DeviceError."""
    if report._message is not None:
        report.message = None
    reports = _thread.reports
    reports.append(report)
    try:
        result = call(*arguments)
    finally:
        reports.pop()
    if report._message is not None:
        raise device_error(report.name, report._message)
    return result


def address(pointer: Any) -> int:
    """A pointer as a number."""
    return int(ffi.cast(_NUMBER, pointer))


def compile_shader(device: Any, label: str, code: str, *, bounds_checks: bool) -> Any:
    """Compile a shader module without wgpu's guard against endless loops: it keeps drivers from unrolling
    loops. Pass `bounds_checks=False` only for a kernel that is known to stay inside its buffers."""
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
    """Write whole words of contiguous data. The raw call costs a third of wgpu's own method."""
    checked(
        _thread.write_report, lib.wgpuQueueWriteBuffer,
        queue, buffer._internal, offset, ffi.from_buffer(data), size,
    )  # fmt: skip
