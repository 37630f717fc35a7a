"""The kinds of adapter that a site has plans for. The player takes the first that its adapter can run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

from pteron.errors import InputError
from pteron.ops import Target
from pteron.plan import Executable
from pteron.plan.verify import storage_buffers
from pteron.web.check import Check

Json: TypeAlias = Any

_BUFFER_MAX = (1 << 32) - 4  # bytes: what a WebGPU adapter may allow; the player asks for what is needed
_HARDWARE = Target(is_cpu=False, binding_bytes_max=_BUFFER_MAX)
_SUBGROUPS = replace(_HARDWARE, subgroup_size=32, workgroup_bytes_max=32768)
# From the most special to the simplest: if a kernel is wrong on an adapter, the player takes the next.
TARGETS: Mapping[str, Target] = {
    "subgroups-f16": replace(_SUBGROUPS, shader_f16=True),
    "subgroups": _SUBGROUPS,
    "hardware-f16": replace(_HARDWARE, shader_f16=True),
    "hardware": _HARDWARE,
    "software": Target(binding_bytes_max=_BUFFER_MAX),
}
DEFAULT = ("subgroups", "hardware", "software")
_PACKED_DOTS = re.compile(r"\bdot4[IU]8Packed\(")
_LIMITS = {  # WebGPU's names, with the values that every device has
    "maxBufferSize": 1 << 28,
    "maxStorageBufferBindingSize": 1 << 27,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupStorageSize": 16384,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """The executables of a site for one kind of adapter, by name."""

    name: str
    target: Target
    executables: Mapping[str, Executable]
    checks: Mapping[str, Sequence[Check]] = field(default_factory=dict)  # by executable

    def needs(self) -> Json:
        """What an adapter must have: features, limits above the usual ones, language features."""
        target = self.target
        modules = [module for each in self.executables.values() for module in each.modules()]
        sizes = [size for each in self.executables.values() for size in buffer_sizes(each)]
        is_shared = any("var<workgroup>" in module.source for module in modules)
        largest = max(sizes, default=0)
        used = {
            "maxBufferSize": largest,
            "maxStorageBufferBindingSize": largest,
            "maxStorageBuffersPerShaderStage": max(map(storage_buffers, modules), default=0),
            "maxComputeInvocationsPerWorkgroup": max((prod(each.workgroup) for each in modules), default=0),
            "maxComputeWorkgroupSizeX": max((each.workgroup[0] for each in modules), default=0),
            "maxComputeWorkgroupStorageSize": target.workgroup_bytes_max if is_shared else 0,
        }
        has_subgroups = any(each.portable_source != each.source for each in modules)
        features = {"shader-f16": target.shader_f16, "subgroups": has_subgroups}
        is_packed = any(_PACKED_DOTS.search(each.source) for each in modules)
        return {
            "software": target.is_cpu,
            "features": [name for name, is_used in features.items() if is_used],
            "subgroupSize": target.subgroup_size if has_subgroups else 0,
            "limits": {name: size for name, size in used.items() if size > _LIMITS[name]},
            "language": ["packed_4x8_integer_dot_product"] if is_packed else [],
        }


def buffer_sizes(executable: Executable) -> list[int]:
    """The bytes of every buffer of an executable."""
    sizes = [*executable.slots, *(state.bytes for state in executable.states.values())]
    sizes += [weight.bytes for weight in executable.weights()]
    return sizes + [size for plan in executable.all_plans() for size in plan.scratch_bytes]


def chosen_targets(names: Iterable[str] | None) -> dict[str, Target]:
    """Targets by the names of variants, in the order in which the player prefers them."""
    wanted: Sequence[str] = DEFAULT if names is None else [names] if isinstance(names, str) else list(names)
    unknown = [name for name in wanted if name not in TARGETS]
    if unknown or not wanted:
        raise InputError(
            f"variants can be {', '.join(TARGETS)}, not {', '.join(map(repr, unknown)) or 'none'}"
        )
    return {name: target for name, target in TARGETS.items() if name in wanted}
