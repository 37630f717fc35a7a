"""Dawn, the WebGPU of Chromium, as a compiler of kernels: stricter than wgpu about what WGSL is. It runs on
its null backend, which needs no GPU and computes nothing."""

from __future__ import annotations

import os
import re
from functools import cache

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo, describe
from pteron.gpu.choose import dawn
from pteron.gpu.device import Device
from pteron.wgsl import Module

# The null backend has the least that WebGPU grants; kernels that need more are planned where there is more.
_BEYOND_THE_LEAST = re.compile("maximum allowed|device maxSubgroupSize")


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

    @staticmethod
    def shared() -> DawnCompiler:
        """The one of this process, or a DawnMissingError."""
        found = _open()
        if isinstance(found, DawnMissingError):
            raise found
        return found

    def complaints(self, module: Module) -> tuple[str, ...]:
        """What Dawn has against a kernel, each text being compiled once: as browsers get it, and as Dawn's
        devices get it here."""
        if module.source not in self._found:
            self._found[module.source] = tuple(
                f"{module.kernel}: {complaint}" for complaint in self._compile(module)
            )
        return self._found[module.source]

    def _compile(self, module: Module) -> list[str]:
        found = []
        handle, library = self.device.handle, self.device.library
        try:
            if "subgroup_matrix" not in module.source:
                handle.create_shader_module(code=module.portable_source)
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
