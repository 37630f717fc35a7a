"""The GPU adapters of this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pteron.gpu import wgpu_native
from pteron.gpu.exceptions import read_exceptions
from pteron.gpu.library import Library
from pteron.ops import Target

_PREFERENCE = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_NVIDIA, _APPLE = 0x10DE, 0x106B
# Backends where wgpu compiles dot4I8Packed to one instruction; on Metal and OpenGL it compiles to four
# multiplications.
_PACKED_DOTS = {"Vulkan", "D3D12"}
# llvmpipe (Mesa's software rasterizer) stops a shader invocation after this many loop iterations in total.
_SOFTWARE_LOOPS = 65535


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter and its properties."""

    index: int  # among the machine's adapters, sorted by preference
    name: str
    kind: str  # DiscreteGPU, IntegratedGPU, CPU or Unknown
    backend: str  # Vulkan, Metal, D3D12, ...
    driver: str
    features: tuple[str, ...]
    limits: dict[str, int]
    subgroup_size: int  # 0: it varies
    packed_dots: bool
    handle: Any = field(repr=False, compare=False)
    library: Library = wgpu_native.LIBRARY
    matrices: tuple[str, ...] = ()  # products that subgroups can compute, as Target.matrices has them
    exceptions: tuple[str, ...] = ()  # parts that `pteron doctor --write` found wrong, by the names of PARTS

    @property
    def is_cpu(self) -> bool:
        return self.kind == "CPU"

    @property
    def loop_max(self) -> int:
        """The adapter silently ends the loops of an invocation after this many iterations; 0: no limit."""
        return _SOFTWARE_LOOPS if self.is_cpu else 0

    @property
    def used_features(self) -> list[str]:
        """The features that a device of this adapter is opened with."""
        return [own for own, feature in self.library.features.items() if feature in self.features]

    @property
    def target(self) -> Target:
        """The properties that plans depend on."""
        has_subgroups = "subgroup" in self.features
        whole = Target(
            shader_f16="shader-f16" in self.features,
            subgroup_size=self.subgroup_size if has_subgroups else 0,
            packed_dots=self.packed_dots,
            is_cpu=self.is_cpu,
            workgroups_max=self.limits["max-compute-workgroups-per-dimension"],
            invocations_max=self.limits["max-compute-invocations-per-workgroup"],
            workgroup_bytes_max=self.limits["max-compute-workgroup-storage-size"],
            binding_bytes_max=self.limits["max-storage-buffer-binding-size"],
            buffers_max=self.limits["max-storage-buffers-per-shader-stage"],
            uniform_bytes_max=self.limits["max-uniform-buffer-binding-size"],
            uniform_alignment=self.limits["min-uniform-buffer-offset-alignment"],
            loop_max=self.loop_max,
            broadcasts=self.is_cpu and has_subgroups,
            matrices=self.matrices,
        )
        return whole.without(self.exceptions)

    def __str__(self) -> str:
        other = "" if self.library is wgpu_native.LIBRARY else f", {self.library.name}"
        return f"{self.name} ({self.kind}, {self.backend}{other})"


def adapters(library: Library = wgpu_native.LIBRARY) -> tuple[AdapterInfo, ...]:
    """The machine's adapters as a library lists them, the most capable first."""
    try:
        handles = library.entry().enumerate_adapters_sync()
    except RuntimeError:  # no Vulkan loader
        return ()
    handles = sorted(handles, key=lambda handle: _PREFERENCE.get(handle.info["adapter_type"], 2))
    return tuple(describe(index, handle, library) for index, handle in enumerate(handles))


def describe(index: int, handle: Any, library: Library) -> AdapterInfo:
    """An adapter of a library."""
    info = handle.info
    names = library.features
    return AdapterInfo(
        index=index,
        name=info["device"],
        kind=info["adapter_type"],
        backend=info["backend_type"],
        driver=info["description"],
        features=tuple(sorted(names.get(feature, feature) for feature in handle.features)),
        limits=dict(handle.limits),
        subgroup_size=_subgroup_size(info),
        packed_dots=info["backend_type"] in _PACKED_DOTS,
        handle=handle,
        library=library,
        matrices=library.matrices(handle),
        exceptions=read_exceptions(library.name, info["device"], info["backend_type"], info["description"]),
    )


def _subgroup_size(info: Any) -> int:
    # Adapters report a range of subgroup sizes. Only these vendors' GPUs always use one size.
    return {_NVIDIA: 32, _APPLE: 32}.get(info["vendor_id"], 0)
