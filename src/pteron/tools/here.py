"""The adapter that programs would run on here, as far as plans and promises need to know it.

Asking for adapters takes most of the time that a look into a small file takes. So what was found is kept
until the machine starts again, its drivers change, or the environment asks for others.
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
from pteron.folders import cache_folder
from pteron.ops import Target

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # another after every start; on Linux alone
_DRIVERS = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_VARIABLES = ("PTERON_ADAPTER", "VK_", "WGPU", "XDG_", "DISPLAY", "LD_", "MESA_", "CUDA_", "NVIDIA_")


@dataclass(frozen=True, slots=True)
class Here:
    """An adapter and what plans for it depend on; where there is none, WebGPU's default limits."""

    target: Target
    adapter: str | None
    problem: str | None = None  # why nothing runs here

    @property
    def limits(self) -> Target:
        """A device with its limits and no peculiarities of software, which cut one launch into thousands:
        what fits there fits here, and is known in a fraction of the time."""
        return replace(self.target, broadcasts=False, loop_max=0)

    @property
    def worth_planning_for(self) -> tuple[Target, str]:
        """Its GPU; or, where it has none, one that any machine may have; and its name."""
        if self.adapter and not self.target.is_cpu:
            return self.target, self.adapter
        return Target(is_cpu=False), "a GPU with WebGPU's default limits"


def find_here(adapter: str | None = None) -> Here:
    """The adapter of that name, or the one `load` would take; no device is opened. A name that matches
    none is an error, a machine without adapters is not."""
    kept = _kept(adapter)
    if kept is not None:
        with suppress(OSError, ValueError, TypeError):
            target, name = json.loads(kept.read_text("utf-8"))
            return Here(Target(**target), str(name))
    from pteron.gpu.adapters import choose  # here: what is known already needs no driver

    try:
        found = choose(adapter)
    except DeviceError as error:
        if adapter:
            raise
        return Here(Target(), None, str(error))
    if kept is not None:
        with suppress(OSError):  # it is asked for again
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps([asdict(found.target), str(found)]), "utf-8")
            partial.replace(kept)
    return Here(found.target, str(found))


def _kept(adapter: str | None) -> Path | None:
    """Where an answer is kept for as long as it holds; None where nothing tells how long that is."""
    try:
        boot = _BOOT.read_text("utf-8")
    except OSError:
        return None
    drivers = [
        (str(file), file.stat().st_mtime_ns) for folder in _DRIVERS for file in sorted(Path(folder).glob("*"))
    ]
    asked = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    key = json.dumps([__version__, boot, drivers, sorted(asked.items()), adapter])
    return cache_folder() / "here" / f"{sha256(key.encode()).hexdigest()[:16]}.json"
