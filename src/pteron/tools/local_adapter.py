"""The adapter that programs use on this machine, without opening a device.

Listing adapters takes longer than inspecting a small file. The result is therefore cached until the machine
reboots, its drivers change, or an environment variable that selects adapters changes.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from pteron import __version__
from pteron.errors import DeviceError
from pteron.folders import cache_folder, replace_file
from pteron.ops import Target

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # changes at every boot; Linux only
_DRIVERS = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_VARIABLES = (
    "PTERON_ADAPTER",
    "PTERON_WEBGPU",
    "VK_",
    "WGPU",
    "XDG_",
    "DISPLAY",
    "LD_",
    "MESA_",
    "CUDA_",
    "NVIDIA_",
)


@dataclass(frozen=True, slots=True)
class LocalAdapter:
    """An adapter and the target that plans for it use; WebGPU's default limits if there is none."""

    target: Target
    adapter: str | None
    problem: str | None = None  # why no program runs on this machine

    @property
    def limits(self) -> Target:
        """A target with the adapter's limits but without the workarounds for software adapters, which split a
        launch into thousands: planning takes a fraction of the time and finds the same size problems."""
        return replace(self.target, broadcasts=False, loop_max=0)

    @property
    def planning_target(self) -> tuple[Target, str]:
        """The target to show plans for, and its name: the adapter if it is a GPU, else WebGPU's defaults."""
        if self.adapter and not self.target.is_cpu:
            return self.target, self.adapter
        return Target(is_cpu=False), "a GPU with WebGPU's default limits"


def find_adapter(adapter: str | None = None) -> LocalAdapter:
    """The adapter with that name, or the one that `load` uses. An unknown name is an error; a machine without
    adapters is not."""
    path = _cache_file(adapter)
    if path is not None:
        with suppress(OSError, ValueError, TypeError):
            target, name = json.loads(path.read_text("utf-8"))
            return LocalAdapter(Target(**target), str(name))
    from pteron.gpu.choose import choose  # imports wgpu, which a cached result does not need

    try:
        found = choose(adapter)
    except DeviceError as error:
        if adapter:
            raise
        return LocalAdapter(Target(), None, str(error))
    if path is not None:
        write_cache(path, [asdict(found.target), str(found)])
    return LocalAdapter(found.target, str(found))


def write_cache(path: Path, content: object) -> None:
    """Write JSON to a cache file; if that fails, the content is computed again next time."""
    with suppress(OSError):
        replace_file(path, json.dumps(content).encode())


def _cache_file(adapter: str | None) -> Path | None:
    """The cache file whose name covers everything the result depends on; None where reboots are unknown."""
    try:
        boot = _BOOT.read_text("utf-8")
    except OSError:
        return None
    folders = (*_DRIVERS, cache_folder() / "exceptions")
    files = [file for folder in folders for file in sorted(Path(folder).glob("*"))]
    drivers = [(str(file), file.stat().st_mtime_ns) for file in files]
    variables = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    key = json.dumps([__version__, boot, drivers, sorted(variables.items()), adapter])
    return cache_folder() / "adapters" / f"{sha256(key.encode()).hexdigest()[:16]}.json"
