"""wgpu-native, through the package wgpu: the default library, and the one for software adapters."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

# Mesa's device-select layer prints warnings without a desktop session, and is not needed.
os.environ.setdefault("NODEVICE_SELECT", "1")

from pteron.gpu.declarations import declared
from pteron.gpu.fork import check_not_forked, when_forked
from pteron.gpu.library import Library, Report

with declared():
    import wgpu
    from wgpu.backends.wgpu_native import GPUShaderModule, _api, extras
    from wgpu.backends.wgpu_native._api import error_handler, libf
    from wgpu.backends.wgpu_native._ffi import ffi, lib
    from wgpu.backends.wgpu_native._helpers import ErrorSlot

if TYPE_CHECKING:
    from pteron.wgsl import Module

# Errors are raised as exceptions; the log would only repeat them.
logging.getLogger("wgpu").setLevel(logging.CRITICAL)

_INDEX = ffi.typeof("WGPUSubmissionIndex *")


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


def _release_nothing() -> None:
    """Disable wgpu's finalizers in a forked child: they would release objects of the parent."""
    _api.libf = None


when_forked(_release_nothing)


class _Report(ErrorSlot, Report):  # type: ignore[misc]  # wgpu has no types
    """wgpu-native's errors on a thread go to the report on top of the thread's stack."""

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
    """A thread's stack of reports."""

    def __init__(self) -> None:
        self.reports = error_handler._get_proxy_stack()
        self.write_report = _Report("writing to a buffer")


_thread = _Thread()


class WgpuNative(Library):
    name = "wgpu-native"
    distribution = "wgpu"
    out_of_memory = "Not enough memory left"
    lost = "device is lost"
    submit_function = "wgpuQueueSubmitForIndex"
    encodes_at_submission = False
    features: ClassVar = {
        name: name for name in ("shader-f16", "subgroup", "timestamp-query", "timestamp-query-inside-passes")
    }

    def entry(self) -> Any:
        check_not_forked()
        _creating.join()
        return wgpu.gpu

    def matrices(self, handle: Any) -> tuple[str, ...]:
        return ()  # it lists them and cannot enable them: docs/notes/matrix-cores.md

    def request_device(self, adapter: Any, features: list[str], limits: Mapping[str, int]) -> Any:
        return adapter.request_device_sync(required_features=features)  # with all of its limits

    def compile_shader(self, device: Any, module: Module) -> Any:
        """Without wgpu's guard against endless loops: it keeps drivers from unrolling loops."""
        label = module.kernel.name
        text, name = ffi.new("char[]", module.source.encode()), ffi.new("char[]", label.encode())
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text, len(text) - 1
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        descriptor.label.data, descriptor.label.length = name, len(name) - 1
        checks = lib.WGPUShaderRuntimeChecks_BoundsChecks if module.bounds_checks else 0
        handle = libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
        return GPUShaderModule(label, handle, device)

    def report(self, name: str) -> Report:
        return _Report(name)

    def checked(self, report: Any, call: Callable[..., Any], *arguments: object) -> Any:
        if report._message is not None:
            report.message = None
        reports = _thread.reports
        reports.append(report)
        try:
            result = call(*arguments)
        finally:
            reports.pop()
        if report._message is not None:  # the last error, which names the cause
            raise self.error(report.name, report._message)
        return result

    def write_buffer(self, queue: Any, buffer: Any, offset: int, data: Any, size: int) -> None:
        self.checked(
            _thread.write_report, lib.wgpuQueueWriteBuffer,
            queue, buffer._internal, offset, ffi.from_buffer(data), size,
        )  # fmt: skip

    def submit(self, queue: Any, command_buffer: Any) -> int:
        return int(lib.wgpuQueueSubmitForIndex(queue, 1, ffi.new(self._command_buffers, [command_buffer])))

    def poll(self, device: Any, queue: Any, wait: bool, submission: int | None) -> None:
        lib.wgpuDevicePoll(device, wait, ffi.NULL if submission is None else ffi.new(_INDEX, submission))

    def timestamp_nanoseconds(self, queue: Any) -> float:
        return float(lib.wgpuQueueGetTimestampPeriod(queue))


LIBRARY = WgpuNative(wgpu, ffi, lib)
