"""The GPU adapters of this machine, and the choice of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib import metadata
from typing import Any

from pteron import __version__
from pteron.errors import DeviceError
from pteron.folders import cache_folder, replace_file
from pteron.gpu import wgpu_native
from pteron.gpu.library import Library
from pteron.ops import Target

ADAPTER_VARIABLE = "PTERON_ADAPTER"
LIBRARY_VARIABLE = "PTERON_WEBGPU"
LIBRARIES = ("auto", "wgpu", "dawn")
DAWN_VERSION = "0.32.0.4"
_PREFERENCE = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_NVIDIA, _APPLE = 0x10DE, 0x106B
# Backends where wgpu compiles dot4I8Packed to one instruction; on Metal and OpenGL it compiles to four
# multiplications.
_PACKED_DOTS = {"Vulkan", "D3D12"}
# llvmpipe (Mesa's software rasterizer) stops a shader invocation after this many loop iterations in total.
_SOFTWARE_LOOPS = 65535
_SOFTWARE_HINT = (
    "no GPU adapter was found; install a Vulkan driver, or for a software adapter: "
    "Debian/Ubuntu `apt install mesa-vulkan-drivers`, Fedora `dnf install mesa-vulkan-drivers`"
)


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
        return Target(
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

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.backend})"


def adapters(library: Library = wgpu_native.LIBRARY) -> tuple[AdapterInfo, ...]:
    """The machine's adapters as a library lists them, the most capable first."""
    try:
        handles = library.entry().enumerate_adapters_sync()
    except RuntimeError:  # no Vulkan loader
        return ()
    handles = sorted(handles, key=lambda handle: _PREFERENCE.get(handle.info["adapter_type"], 2))
    return tuple(_describe(index, handle, library) for index, handle in enumerate(handles))


def choose(wanted: str | None = None, webgpu: str | None = None) -> AdapterInfo:
    """The adapter with the number `wanted`, or with `wanted` in its name or kind; by default the most capable
    one. Without `wanted`, the environment variable PTERON_ADAPTER is used.

    `webgpu` names the library, by default as PTERON_WEBGPU does: "wgpu", "dawn", or "auto", which takes Dawn
    for GPUs whose matrix cores it can use.
    """
    wanted = wanted or os.environ.get(ADAPTER_VARIABLE) or None
    webgpu = webgpu or os.environ.get(LIBRARY_VARIABLE) or LIBRARIES[0]
    if webgpu not in LIBRARIES:
        raise DeviceError(f"no WebGPU library is named {webgpu!r}; there are {', '.join(LIBRARIES)}")
    if webgpu == "dawn":
        return _find(wanted, adapters(dawn()))
    found = _find(wanted, adapters())
    return found if webgpu == "wgpu" else with_matrices(found)[0]


def dawn() -> Library:
    """Dawn; a DeviceError if its package is not installed, or is another version."""
    try:
        version = metadata.version("wgpudawn")
    except metadata.PackageNotFoundError:
        raise DeviceError("wgpudawn is not installed: pip install 'pteron[matrix]'") from None
    if version != DAWN_VERSION:
        raise DeviceError(
            f"wgpudawn {version} is installed, not {DAWN_VERSION}: pip install 'pteron[matrix]'"
        )
    try:
        from pteron.gpu.dawn import LIBRARY
    except (ImportError, OSError) as error:
        raise DeviceError(f"wgpudawn {version} cannot be imported: {error}") from error
    return LIBRARY


def with_matrices(adapter: AdapterInfo) -> tuple[AdapterInfo, str]:
    """The adapter as Dawn has it, if Dawn can use its matrix cores; otherwise the adapter itself. Also the
    reason."""
    if adapter.is_cpu:
        return adapter, "software adapters have no matrix cores"
    try:
        library = dawn()
        same = _counterpart(adapter, library)
        if same is None:
            return adapter, "Dawn does not list this adapter"
        if not same.target.has_matrices:
            return adapter, "the adapter offers no products of f16 matrices with f32 sums"
        check_matrices(same)
    except DeviceError as error:
        return adapter, str(error)
    return same, "its matrix cores are used"


def _counterpart(adapter: AdapterInfo, library: Library) -> AdapterInfo | None:
    """The same adapter in another library. Libraries list equal adapters in the driver's order."""

    def alike(found: Sequence[AdapterInfo]) -> list[AdapterInfo]:
        return [each for each in found if (each.name, each.backend) == (adapter.name, adapter.backend)]

    before = [each.index for each in alike(adapters(adapter.library))].index(adapter.index)
    others = alike(adapters(library))
    return replace(others[before], index=adapter.index) if before < len(others) else None


def check_matrices(adapter: AdapterInfo) -> None:
    """Raise a DeviceError if the adapter computes wrong products of matrices. The test runs once for each
    version of the driver and of the library."""
    from pteron.gpu.matrix_check import check

    key = f"{adapter.name}\n{adapter.driver}\n{DAWN_VERSION}\n{__version__}"
    passed = cache_folder() / "matrices" / sha256(key.encode()).hexdigest()[:16]
    if not passed.exists():
        check(adapter)
        with suppress(OSError):
            replace_file(passed, key.encode())


def _find(wanted: str | None, found: Sequence[AdapterInfo]) -> AdapterInfo:
    if not found:
        raise DeviceError(_SOFTWARE_HINT)
    if wanted is None:
        return found[0]
    if wanted.isdigit() and int(wanted) < len(found):
        return found[int(wanted)]
    for adapter in found:
        if wanted.lower() in f"{adapter.name} {adapter.kind} {adapter.backend}".lower():
            return adapter
    listed = "; ".join(f"{index}: {adapter}" for index, adapter in enumerate(found))
    raise DeviceError(f"no adapter matches {wanted!r}; this machine has {listed}")


def _describe(index: int, handle: Any, library: Library) -> AdapterInfo:
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
    )


def _subgroup_size(info: Any) -> int:
    # Adapters report a range of subgroup sizes. Only these vendors' GPUs always use one size.
    return {_NVIDIA: 32, _APPLE: 32}.get(info["vendor_id"], 0)
