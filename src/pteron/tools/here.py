"""The adapter that programs would run on here, as far as plans and promises need to know it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pteron.errors import DeviceError
from pteron.gpu.adapters import choose
from pteron.ops import Target


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
    try:
        found = choose(adapter)
    except DeviceError as error:
        if adapter:
            raise
        return Here(Target(), None, str(error))
    return Here(found.target, str(found))
