"""Dawn, the WebGPU of Chromium, as a compiler of kernels: stricter than wgpu about what WGSL is. It runs on
its null backend, which needs no GPU and computes nothing."""

from __future__ import annotations

import os
import re
from functools import cache
from math import prod

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo, describe
from pteron.gpu.choose import dawn
from pteron.gpu.device import Device
from pteron.ops import Target
from pteron.wgsl import Module

# The null backend has the least that WebGPU grants; kernels that need more are planned where there is more.
_BEYOND_THE_LEAST = re.compile("maximum allowed|device maxSubgroupSize")
_WORKGROUP_BYTES = re.compile(r"total use of workgroup storage \((\d+) bytes\)")
_WORKGROUP_SIZE = re.compile(r"@workgroup_size\([^)]*\)")


_UNIFORMS_MAX = 12  # of a kernel, on every device


class DawnMissingError(Exception):
    """Why there is no Dawn here."""


def null_adapter() -> AdapterInfo:
    """Dawn's null backend; a DawnMissingError if wgpudawn is not installed."""
    try:
        library = dawn()
    except DeviceError as error:
        raise DawnMissingError(str(error)) from error
    before = os.environ.get("WGPU_BACKEND_TYPE")
    os.environ["WGPU_BACKEND_TYPE"] = "Null"
    try:
        return describe(0, library.entry().request_adapter_sync(), library)
    finally:
        os.environ.pop("WGPU_BACKEND_TYPE")
        if before is not None:
            os.environ["WGPU_BACKEND_TYPE"] = before


class DawnCompiler:
    """A device that compiles one text after the other."""

    def __init__(self) -> None:
        self.device = Device(null_adapter())
        self.device.check_open()
        self._found: dict[str, tuple[str, ...]] = {}
        self._bytes: dict[str, int] = {}

    @staticmethod
    def shared() -> DawnCompiler:
        """The one of this process, or a DawnMissingError."""
        found = _open()
        if isinstance(found, DawnMissingError):
            raise found
        return found

    def complaints(self, module: Module) -> tuple[str, ...]:
        """What Dawn has against a kernel, each text being compiled once: as browsers get it, as Dawn's
        devices get it here, and with limited indices."""
        if module.source not in self._found:
            self._found[module.source] = tuple(
                f"{module.kernel}: {complaint}" for complaint in self._compile(module)
            )
        return self._found[module.source]

    def exceeded(self, module: Module, target: Target) -> list[str]:
        """The limits and features of a device that a kernel planned for it exceeds."""
        buffers = sum(binding.access != "uniform" for binding in module.bindings)
        uniforms = len(module.bindings) - buffers + (module.params_index is not None)
        found = {
            "storage buffers": buffers > target.buffers_max,
            "uniform buffers": uniforms > _UNIFORMS_MAX,
            "invocations": prod(module.workgroup) > target.invocations_max,
            "workgroup memory": self._workgroup_bytes(module) > target.workgroup_bytes_max,
            "f16": "enable f16" in module.source and not target.shader_f16,
            "subgroups": "enable subgroups" in module.portable_source
            and not (target.subgroup_size or target.broadcasts),
        }
        return [f"{module.kernel}: {what}" for what, is_exceeded in found.items() if is_exceeded]

    def _workgroup_bytes(self, module: Module) -> int:
        """The workgroup memory of a kernel, or what every device has if that is enough."""
        if "var<workgroup>" not in module.source or "subgroup_matrix" in module.source:
            return 0
        if module.source not in self._bytes:
            text = _WORKGROUP_SIZE.sub("@workgroup_size(1)", module.portable_source)
            shader = self.device.handle.create_shader_module(code=text)
            try:
                self.device.handle.create_compute_pipeline(
                    layout="auto", compute={"module": shader, "entry_point": "main"}
                )
                stated = None
            except self.device.library.errors as error:
                stated = _WORKGROUP_BYTES.search(str(error))
            self._bytes[module.source] = int(stated[1]) if stated else 0
        return self._bytes[module.source]

    def _compile(self, module: Module) -> list[str]:
        found = []
        handle, library = self.device.handle, self.device.library
        try:
            if "subgroup_matrix" not in module.source:
                handle.create_shader_module(code=module.portable_source)
                handle.create_shader_module(code=module.clamped_source)
            shader = library.compile_shader(handle, module)
            handle.create_compute_pipeline(layout="auto", compute={"module": shader, "entry_point": "main"})
        except library.errors as error:
            if not _BEYOND_THE_LEAST.search(str(error)):
                found.append(str(error))
        return found


@cache
def _open() -> DawnCompiler | DawnMissingError:
    try:
        return DawnCompiler()
    except DawnMissingError as reason:
        return reason
