"""A value table of a method enters; None, a scalar, a string, a list or a tensor record leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pteron.format.flatbuffer import INT8, INT64, UINT32, UINT64, Table
from pteron.format.records import EValue, IndexList, TensorRecord
from pteron.format.stored import StoredData
from pteron.format.tensor_layout import read_layout

_NULL, _TENSOR = 1, 5
_EXTERNAL = 1
_DYNAMISM: dict[int, Literal["static", "bound", "unbound"]] = {0: "static", 1: "bound", 2: "unbound"}


def read_value(table: Table, count: int, stored: StoredData) -> EValue:
    """One of a method's `count` values."""
    kind, value = table.union(0, "val")
    if kind == _NULL:
        return None
    if value is not None:
        if kind == _TENSOR:
            return read_tensor(value, stored)
        if kind in _SIMPLE_VALUES:
            return _SIMPLE_VALUES[kind](value, count)
    raise table.error("val", f"no value of a known kind (type {kind})")


def _optional_tensors(table: Table, count: int) -> IndexList:
    return IndexList("optional_tensor", table.indices(0, "items", count, "values", lowest=-1))


_SIMPLE_VALUES: dict[int, Callable[[Table, int], EValue]] = {
    2: lambda table, _: table.integer(0, "int_val", INT64),
    3: lambda table, _: table.boolean(0, "bool_val"),
    4: lambda table, _: table.double(0, "double_val"),
    6: lambda table, _: table.text(0, "string_val"),
    7: lambda table, count: IndexList("int", table.indices(0, "items", count, "values", INT64)),
    8: lambda table, _: table.doubles(0, "items"),
    9: lambda table, _: table.booleans(0, "items"),
    10: lambda table, count: IndexList("tensor", table.indices(0, "items", count, "values")),
    11: _optional_tensors,
}


def read_tensor(table: Table, stored: StoredData) -> TensorRecord:
    """A tensor with its bytes, if the program has any for it."""
    layout = read_layout(table, dtype_slot=0, sizes_slot=2, dim_order_slot=3)
    if table.integer(1, "storage_offset") != 0:
        raise table.error("storage_offset", "only 0 is possible")
    dynamism = _DYNAMISM.get(table.integer(8, "shape_dynamism", INT8))
    if dynamism is None:
        raise table.error("shape_dynamism", "not static, bound or unbound")

    buffer = table.integer(5, "data_buffer_idx", UINT32)
    allocation = table.table(6, "allocation_info")
    has_storage = allocation is not None
    extra = table.table(9, "extra_tensor_info")
    name = extra.text(1, "fully_qualified_name") if extra else ""
    is_external = extra is not None and extra.integer(2, "location", INT8) == _EXTERNAL
    if is_external and not name:
        raise table.error("extra_tensor_info", "an external tensor has no name to find it by")

    data: memoryview | None = None
    if buffer > 0 and not is_external:
        if has_storage:
            group = extra.integer(0, "mutable_data_segments_idx", UINT64) if extra else 0
            data = stored.initial_value(table, group, buffer)
        else:
            data = stored.constant(table, buffer)
        if len(data) < layout.byte_size:
            raise table.error("data_buffer_idx", f"{len(data)} bytes where {layout.byte_size} are needed")
        data = data[: layout.byte_size]

    has_data = data is not None or is_external
    return TensorRecord(
        dtype=layout.dtype,
        sizes=layout.sizes,
        dim_order=layout.dim_order,
        dynamism=dynamism,
        data=data,
        is_constant=has_data and not has_storage,
        is_mutable=has_data and has_storage,
        name=name or None,
        is_external=is_external,
        place=_place(allocation) if allocation else None,
    )


def _place(allocation: Table) -> tuple[int, int]:
    """An arena and an offset of 64 bits, which files store in halves."""
    low, high = (
        allocation.integer(slot, f"memory_offset_{half}", UINT32) for slot, half in ((1, "low"), (2, "high"))
    )
    return allocation.integer(0, "memory_id", UINT32), high << 32 | low
