"""The properties of a device, and the user's options, that a plan may depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError

MATRIX = "f16 f32 16x16x16"  # the product that kernels use
EMULATED = "emulated"  # the same product without matrix cores, for tests
PRODUCTS = ("f32", "f16")  # precision of products by matrices
DIGITS = (2, 3)  # that activations can be split into, the quickest first
# Parts of a device that plans can do without, the most special first: the fields that leave them out. The
# last is the route: kernels for the other kind of device.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "matrices": {"matrices": ()},
    "f16": {"shader_f16": False},
    "packed-dots": {"packed_dots": False},
    "subgroups": {"subgroup_size": 0, "broadcasts": False, "matrices": ()},
    "route": {},
}


@dataclass(frozen=True, slots=True)
class Target:
    """The kind of device that a plan is made for."""

    shader_f16: bool = False
    subgroup_size: int = 0  # 0: do not use subgroup operations
    packed_dots: bool = True  # four products of int8 are an instruction; elsewhere they are written out
    is_cpu: bool = True  # a software adapter: barriers are costly there, cache lines are not
    workgroups_max: int = 65535  # per axis
    invocations_max: int = 256  # per workgroup
    workgroup_bytes_max: int = 16384
    binding_bytes_max: int = 1 << 27
    buffers_max: int = 8  # storage buffers of a kernel
    uniform_bytes_max: int = 1 << 16  # of a uniform array
    uniform_alignment: int = 256  # bytes: a uniform array starts at a multiple of this
    broadcasts: bool = False  # on CPUs: whether lanes of any subgroup can read one another's values
    loop_max: int = 0  # iterations of all its loops after which an invocation ends; 0: no such limit
    matrices: tuple[str, ...] = ()  # products that subgroups can compute: "f16 f32 16x16x16" has f32 sums
    products: str = "f32"  # precision of products by matrices: f32, as others have it, or f16
    digits: int = 3  # of 8 bits, for x in 4-bit products: 3 keep 22 bits of a chunk's largest, 2 keep 14

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrices", tuple(self.matrices))  # from JSON it comes as a list

    @property
    def has_matrices(self) -> bool:
        """Whether kernels may multiply f16 matrices with f32 sums, in subgroups of 32."""
        return EMULATED in self.matrices or (MATRIX in self.matrices and self.subgroup_size == 32)

    @property
    def has_uniform_arrays(self) -> bool:
        """Whether kernels that load uniform arrays are the fastest: on software adapters with subgroups."""
        return self.is_cpu and self.broadcasts

    @property
    def slack(self) -> int:
        """Bytes that arena memory has past its tensors: a uniform array has one length for many shapes."""
        return self.uniform_bytes_max if self.is_cpu else 0

    @property
    def slot_bytes_max(self) -> int:
        """The largest buffer of arena memory, without its slack."""
        return (self.binding_bytes_max - self.slack) // 16 * 16

    @property
    def bytes_of_half(self) -> int:
        """Of a half that matrices multiply, in workgroup memory: emulated ones are stored as floats."""
        return 4 if EMULATED in self.matrices else 2

    def without(self, parts: Iterable[str]) -> Target:
        """This target without some PARTS of the device."""
        left = self
        for part in parts:
            left = replace(left, **(PARTS[part] or {"is_cpu": not left.is_cpu}))
        return left

    def storage(self, dtype: DType) -> Storage:
        """The storage type of elements of this type in its buffers."""
        return Storage.of(dtype, shader_f16=self.shader_f16)

    def check_runs_on(self, device: Target) -> None:
        """Raise a DeviceError if a device lacks what plans for this target use."""
        uniforms = (
            f"uniform arrays of {self.uniform_bytes_max} bytes at multiples of {self.uniform_alignment}"
        )
        is_aligned = self.uniform_alignment % device.uniform_alignment == 0
        has_uniforms = self.uniform_bytes_max <= device.uniform_bytes_max and is_aligned
        has_subgroups = self.subgroup_size == device.subgroup_size
        limits = (
            ("f16 arithmetic", self.shader_f16, device.shader_f16),
            (f"subgroups of {self.subgroup_size}", self.subgroup_size, has_subgroups),
            (f"{self.workgroups_max} workgroups an axis", True, self.workgroups_max <= device.workgroups_max),
            ("values passed among lanes", self.broadcasts, device.broadcasts),
            (uniforms, self.broadcasts, has_uniforms),
            ("products of f16 matrices", MATRIX in self.matrices, device.has_matrices),
            ("loops without a limit", device.loop_max, 0 < self.loop_max <= device.loop_max),
        )
        missing = [what for what, is_used, is_there in limits if is_used and not is_there]
        if missing:
            raise DeviceError(f"the program was planned for a device with {', '.join(missing)}")
