"""A table that describes a tensor enters; its element type, sizes and dimension order leave, checked."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pteron.dtypes import SCALAR_TYPES, DType
from pteron.format.flatbuffer import INT8, UINT8, Table

RANK_MAX = 16
_BYTES_MAX = 1 << 48


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Element type, sizes and memory order; `dim_order` runs from outermost to innermost."""

    dtype: DType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]

    @property
    def byte_size(self) -> int:
        return prod(self.sizes) * self.dtype.itemsize


def read_layout(table: Table, *, dtype_slot: int, sizes_slot: int, dim_order_slot: int) -> TensorLayout:
    type_id = table.integer(dtype_slot, "scalar_type", INT8)
    dtype = SCALAR_TYPES.get(type_id)
    if dtype is None:
        raise table.error("scalar_type", f"element type {type_id} is not one Pteron knows")
    sizes = table.integers(sizes_slot, "sizes")
    check_sizes(table, "sizes", sizes, dtype)
    dim_order = table.integers(dim_order_slot, "dim_order", UINT8)
    if sorted(dim_order) != list(range(len(sizes))):
        raise table.error("dim_order", f"not an order of {len(sizes)} dimensions")
    return TensorLayout(dtype, sizes, dim_order)


def check_sizes(table: Table, name: str, sizes: tuple[int, ...], dtype: DType) -> None:
    """Raise on impossible ranks and sizes, so that later products stay small integers."""
    if len(sizes) > RANK_MAX:
        raise table.error(name, f"{len(sizes)} dimensions; at most {RANK_MAX} are possible")
    if any(size < 0 for size in sizes):
        raise table.error(name, f"{sizes} has a negative size")
    if prod(sizes) * dtype.itemsize > _BYTES_MAX:
        raise table.error(name, f"a tensor of {sizes} {dtype} is larger than any memory")
