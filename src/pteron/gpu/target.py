"""An adapter -> what plans for it may depend on; no device is opened for that."""

from __future__ import annotations

from pteron.gpu.adapters import AdapterInfo
from pteron.ops import Target


def target_of(adapter: AdapterInfo) -> Target:
    """What a device of this adapter will be like."""
    has_subgroups = "subgroup" in adapter.features
    return Target(
        shader_f16="shader-f16" in adapter.features,
        subgroup_size=adapter.subgroup_size if has_subgroups else 0,
        packed_dots=adapter.packed_dots,
        is_cpu=adapter.is_cpu,
        workgroups_max=adapter.limits["max-compute-workgroups-per-dimension"],
        invocations_max=adapter.limits["max-compute-invocations-per-workgroup"],
        workgroup_bytes_max=adapter.limits["max-compute-workgroup-storage-size"],
        binding_bytes_max=adapter.limits["max-storage-buffer-binding-size"],
        buffers_max=adapter.limits["max-storage-buffers-per-shader-stage"],
        uniform_bytes_max=adapter.limits["max-uniform-buffer-binding-size"],
        uniform_alignment=adapter.limits["min-uniform-buffer-offset-alignment"],
        loop_max=adapter.loop_max,
        broadcasts=adapter.is_cpu and has_subgroups,
    )
