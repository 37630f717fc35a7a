"""Dawn, through the package wgpudawn: the library whose kernels can use matrix cores.

Dawn has bounds checks per device, not per kernel. Its devices are opened without them. Kernels that do not
state the extents of all their bindings, which planning proves for every launch, have checks in their text.
Kernels of files that are not trusted are refused.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

os.environ.setdefault("NODEVICE_SELECT", "1")  # as in wgpu_native.py

import wgpudawn
from wgpudawn.backends.dawn import _api, extras
from wgpudawn.backends.dawn._api import error_handler
from wgpudawn.backends.dawn._ffi import c_callback, ffi, lib
from wgpudawn.backends.dawn._helpers import get_wgpu_instance

from pteron.gpu.fork import check_not_forked, when_forked
from pteron.gpu.library import Library, Report

if TYPE_CHECKING:
    from pteron.wgsl import Module

logging.getLogger("wgpudawn").setLevel(logging.CRITICAL)

# Without these, Dawn hides experimental features, and f16 on NVIDIA's drivers.
_INSTANCE_TOGGLES = ["allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"]
_DEVICE_TOGGLES = ["disable_robustness", "disable_workgroup_init"]
_LIMITS = (
    "max-buffer-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-storage-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-uniform-buffer-binding-size",
    "min-uniform-buffer-offset-alignment",
)  # requested as the adapter has them; other limits stay at WebGPU's defaults
_FUTURES_MAX = 256  # submissions that can be waited for one by one
_FOREVER = (1 << 64) - 1  # nanoseconds
# In front of kernels with matrices. Uniformity could be proven only from the builtin subgroup_id.
_MATRIX_HEAD = (
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\nenable chromium_experimental_subgroup_matrix;\n"
)


def _release_nothing() -> None:
    """Disable finalizers in a forked child: they would release objects of the parent."""
    _api.libf = None


when_forked(_release_nothing)


class _Report(Report):
    message = None  # and `failed` stays 0: Dawn does not abort when a bad command buffer is submitted

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed = ffi.new("uint32_t *")


class Dawn(Library):
    name = "Dawn"
    distribution = "wgpudawn"
    out_of_memory = "OUT_OF_DEVICE_MEMORY"
    lost = "is lost"
    submit_function = None
    encodes_at_submission = True
    features: ClassVar = {
        "shader-f16": "shader-f16",
        "subgroups": "subgroup",
        "timestamp-query": "timestamp-query",
        "chromium-experimental-timestamp-query-inside-passes": "timestamp-query-inside-passes",
        "chromium-experimental-subgroup-matrix": "subgroup-matrix",
        "implicit-device-synchronization": "threads",
    }

    def __init__(self) -> None:
        super().__init__(wgpudawn, ffi, lib)
        self._has_instance = False
        self._write_report = _Report("writing to a buffer")
        self._numbers = count(1)
        self._futures: dict[int, Any] = {}  # of the last submissions
        self._done = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        # Futures of this mode end in `poll`; those for waiting only would stay in memory until waited for.
        self._done.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._done.callback = c_callback("WGPUQueueWorkDoneCallback")

    def entry(self) -> Any:
        check_not_forked()
        if not self._has_instance:
            self._has_instance = True
            backends = ["Vulkan"] if sys.platform == "linux" else ["Primary"]
            extras.set_instance_extras(
                backends=backends,
                enable_toggles=_INSTANCE_TOGGLES,
                disable_toggles=["timestamp_quantization"],
            )
        return wgpudawn.gpu

    def matrices(self, handle: Any) -> tuple[str, ...]:
        if "chromium-experimental-subgroup-matrix" not in handle.features:
            return ()
        found = extras.get_adapter_properties(handle).get("subgroup_matrix_configs", [])
        return tuple(map(matrix_name, found))

    def request_device(self, adapter: Any, features: list[str], limits: Mapping[str, int]) -> Any:
        return extras.request_device_sync(
            self._unused(adapter),
            required_features=features,
            required_limits={name: limits[name] for name in _LIMITS},
            enable_toggles=_DEVICE_TOGGLES,
        )

    def _unused(self, handle: Any) -> Any:
        """The same adapter, listed again: Dawn's can open one device."""
        wanted = _identity(handle)
        return next(
            (each for each in self.entry().enumerate_adapters_sync() if _identity(each) == wanted), handle
        )

    def compile_shader(self, device: Any, module: Module) -> Any:
        code = module.clamped_source if module.bounds_checks else module.portable_source
        if "subgroup_matrix" in code:
            code = _MATRIX_HEAD + code
        return device.create_shader_module(label=module.kernel.name, code=code)

    def report(self, name: str) -> Report:
        return _Report(name)

    def checked(self, report: Report, call: Callable[..., Any], *arguments: object) -> Any:
        """Dawn keeps errors of all threads in one list; an error of another thread may be raised here."""
        result = call(*arguments)
        if error_handler.pending and (errors := error_handler.pending[:]):
            error_handler.pending.clear()
            raise self.error(report.name, errors[-1][1])
        return result

    def write_buffer(self, queue: Any, buffer: Any, offset: int, data: Any, size: int) -> None:
        self.checked(
            self._write_report, lib.wgpuQueueWriteBuffer,
            queue, buffer._internal, offset, ffi.from_buffer(data), size,
        )  # fmt: skip

    def submit(self, queue: Any, command_buffer: Any) -> int:
        """Every submission has a future: waiting for all work instead would take a fifth of decoding."""
        lib.wgpuQueueSubmit(queue, 1, ffi.new(self._command_buffers, [command_buffer]))
        number = next(self._numbers)
        self._futures[number] = lib.wgpuQueueOnSubmittedWorkDone(queue, self._done[0])
        self._futures.pop(number - _FUTURES_MAX, None)
        return number

    def poll(self, device: Any, queue: Any, wait: bool, submission: int | None) -> None:
        instance = get_wgpu_instance()
        if wait:
            waiting = ffi.new("WGPUFutureWaitInfo *")
            future = self._futures.get(submission) if submission else None
            waiting.future = future or lib.wgpuQueueOnSubmittedWorkDone(queue, self._done[0])
            lib.wgpuInstanceWaitAny(instance, 1, waiting, _FOREVER)
        lib.wgpuInstanceProcessEvents(instance)

    def timestamp_nanoseconds(self, queue: Any) -> float:
        return 1.0


def matrix_name(shape: dict[str, Any]) -> str:
    """A configuration of Dawn as Target.matrices has it: "f16 f32 16x16x16"."""
    return (
        f"{shape['component_type']} {shape['result_component_type']} {shape['m']}x{shape['n']}x{shape['k']}"
    )


def _identity(handle: Any) -> object:
    return dict(handle.info), extras.get_adapter_properties(handle).get("vulkan_uuids")


LIBRARY = Dawn()
