"""What of a device a plan may depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """The kind of device that a plan is made for."""

    shader_f16: bool = False
    subgroup_size: int = 0  # 0: subgroup operations are not to be used
    is_cpu: bool = True  # a software adapter: barriers are costly there, cache lines are not
    workgroups_max: int = 65535  # per axis
    workgroup_bytes_max: int = 16384
    binding_bytes_max: int = 1 << 27
    loop_max: int = 0  # iterations of all its loops after which an invocation ends; 0: no such limit
