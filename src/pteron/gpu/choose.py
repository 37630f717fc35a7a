"""The choice of an adapter, and of the WebGPU library that it is used through."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from importlib import metadata

from pteron import __version__
from pteron.errors import DeviceError
from pteron.extras import pip_install
from pteron.folders import cache_folder, replace_file
from pteron.gpu.adapters import AdapterInfo, adapters
from pteron.gpu.library import Library
from pteron.gpu.matrix_check import check
from pteron.system import address_space_max

ADAPTER_VARIABLE = "PTERON_ADAPTER"
LIBRARY_VARIABLE = "PTERON_WEBGPU"
LIBRARIES = ("auto", "wgpu", "dawn")
DAWN_VERSION = "0.32.0.4"
_MATRIX_FEATURE = "cooperative-matrix"  # as wgpu-native names it
_ADDRESSES_MIN = 16 << 30  # bytes; drivers map the memory of a GPU, and libraries of hundreds of MiB
_DRIVERS = {
    "darwin": "Metal is part of macOS; a virtual machine needs a virtual GPU",
    "win32": "install the driver of your GPU, for Direct3D 12 or Vulkan",
}
_DRIVERS_ELSEWHERE = (
    "install a Vulkan driver, or for a software adapter: "
    "Debian/Ubuntu `apt install mesa-vulkan-drivers`, Fedora `dnf install mesa-vulkan-drivers`"
)


def choose(wanted: str | None = None, webgpu: str | None = None) -> AdapterInfo:
    """The adapter with the number `wanted`, or with `wanted` in its name or kind; by default the most capable
    one. Without `wanted`, the environment variable PTERON_ADAPTER is used.

    `webgpu` names the library, by default as PTERON_WEBGPU does: "wgpu", "dawn", or "auto", which takes Dawn
    for GPUs whose matrix cores it can use.
    """
    wanted = wanted or os.environ.get(ADAPTER_VARIABLE) or None
    named = os.environ.get(LIBRARY_VARIABLE)
    library = webgpu or named or LIBRARIES[0]
    if library not in LIBRARIES:
        source = f"webgpu={webgpu!r}" if webgpu else f"{LIBRARY_VARIABLE}={named!r}"
        raise DeviceError(
            f"{source}: the WebGPU library can be {', '.join(LIBRARIES[:-1])} or {LIBRARIES[-1]}"
        )
    if library == "dawn":
        return _without_wrong_matrices(_find(wanted, _adapters_of_dawn()))
    found = _find(wanted, adapters())
    return found if library == "wgpu" else with_matrices(found)[0]


def is_only_software(adapter: AdapterInfo) -> bool:
    """Whether the most capable adapter of this machine is a software adapter, and is this one."""
    return adapter.is_cpu and adapter.index == 0


def software_sentence(adapter: AdapterInfo) -> str:
    """What to expect of a machine without a GPU."""
    return (
        f"no GPU was found (is its driver installed?): {adapter.name} computes on the CPU, with correct "
        "results but many times slower"
    )


def matrix_hint(adapter: AdapterInfo, webgpu: str | None = None) -> str:
    """What to install for a GPU's matrix cores; "" where that cannot help."""
    has_cores = _MATRIX_FEATURE in adapter.features and not adapter.is_cpu
    is_automatic = (webgpu or os.environ.get(LIBRARY_VARIABLE) or LIBRARIES[0]) == LIBRARIES[0]
    if not (has_cores and is_automatic) or any(metadata.distributions(name="wgpudawn")):
        return ""
    faster = "its matrix cores read prompts several times as fast"
    return f"{adapter.name}: {faster} with `{pip_install('matrix')}`"


def dawn() -> Library:
    """Dawn; a DeviceError if its package is not installed, or is another version."""
    try:
        version = metadata.version("wgpudawn")
    except metadata.PackageNotFoundError:
        needs = "the matrix cores of GPUs that have them need the package wgpudawn, which is not installed"
        raise DeviceError(f"{needs}: {pip_install('matrix')}") from None
    if version != DAWN_VERSION:
        raise DeviceError(f"wgpudawn {version} is installed, not {DAWN_VERSION}: {pip_install('matrix')}")
    try:
        from pteron.gpu.dawn import LIBRARY
    except Exception as error:  # a damaged installation may raise anything
        again = f"pip install --force-reinstall wgpudawn=={DAWN_VERSION}"
        raise DeviceError(f"wgpudawn {version} cannot be imported: {error}; reinstall it: {again}") from error
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
            return adapter, _why_without_matrices(same)
        check_matrices(same)
    except DeviceError as error:
        return adapter, str(error)
    except (RuntimeError, ValueError) as error:  # an option that this build of Dawn does not have
        return adapter, f"Dawn cannot be used: {error}"
    return same, "its matrix cores are used"


def _why_without_matrices(adapter: AdapterInfo) -> str:
    if replace(adapter, exceptions=()).target.has_matrices:
        return "`pteron doctor --write` found parts wrong that matrix cores need"
    return "the adapter offers no 16x16x16 products of f16 matrices with f32 sums in subgroups of 32"


def _counterpart(adapter: AdapterInfo, library: Library) -> AdapterInfo | None:
    """The same adapter in another library. Libraries list equal adapters in the driver's order."""

    def alike(found: Sequence[AdapterInfo]) -> list[AdapterInfo]:
        return [each for each in found if (each.name, each.backend) == (adapter.name, adapter.backend)]

    others = alike(adapters(library))
    before = sum(each.index < adapter.index for each in alike(adapters(adapter.library)))
    return replace(others[before], index=adapter.index) if before < len(others) else None


def check_matrices(adapter: AdapterInfo) -> None:
    """Raise a DeviceError if the adapter computes wrong products of matrices. The test runs once for each
    version of the driver and of the library."""
    key = f"{adapter.name}\n{adapter.driver}\n{DAWN_VERSION}\n{__version__}"
    passed = cache_folder() / "matrices" / sha256(key.encode()).hexdigest()[:16]
    if not passed.exists():
        check(adapter)
        with suppress(OSError):
            replace_file(passed, key.encode())


def _without_wrong_matrices(adapter: AdapterInfo) -> AdapterInfo:
    """The adapter, without its matrix cores if their test fails."""
    try:
        if adapter.target.has_matrices:
            check_matrices(adapter)
    except DeviceError:
        return replace(adapter, matrices=())
    return adapter


def _adapters_of_dawn() -> tuple[AdapterInfo, ...]:
    """Dawn's adapters; a DeviceError if it refuses all those that wgpu-native lists."""
    found = adapters(dawn())
    if not found and (others := adapters()):
        raise DeviceError(
            f"Dawn cannot use any adapter of this machine ({_listed(others)}); wgpu-native can: "
            f"{LIBRARY_VARIABLE}=auto, or webgpu='auto' where a device is opened"
        )
    return found


def _find(wanted: str | None, found: Sequence[AdapterInfo]) -> AdapterInfo:
    if not found:
        advice, limit = _DRIVERS.get(sys.platform, _DRIVERS_ELSEWHERE), address_space_max()
        if limit is not None and limit < _ADDRESSES_MIN:
            few = f"{limit >> 20:,} MiB of address space may be too few for it: raise `ulimit -v`"
            advice = f"{advice}; if a driver is there, {few}"
        raise DeviceError(f"no GPU adapter was found; {advice}")
    if wanted is None:
        return found[0]
    if wanted.isdigit() and len(wanted) < 3:  # an index; longer numbers are those of models
        if int(wanted) < len(found):
            return found[int(wanted)]
        raise DeviceError(f"there is no adapter {wanted}; this machine has {_listed(found)}")
    for adapter in found:
        if wanted.lower() in f"{adapter.name} {adapter.kind} {adapter.backend}".lower():
            return adapter
    raise DeviceError(f"no adapter matches {wanted!r}; this machine has {_listed(found)}")


def _listed(found: Sequence[AdapterInfo]) -> str:
    return "; ".join(f"{index}: {adapter}" for index, adapter in enumerate(found))
