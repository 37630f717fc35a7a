"""A "VulkanBackend" or "PteronBackend" blob enters; the graph it holds leaves, as records with checked ids.

The blob is a header (VH00), a flatbuffer (VK00) and an area of inline constants, empty where
constants are named data of the program or of a weight file.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from struct import Struct

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.flatbuffer import INT8, INT64, UINT32, UINT64, Table, open_root
from pteron.format.records import (
    ConstantRecord,
    DelegateGraph,
    NodeRecord,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)
from pteron.format.source import contents
from pteron.format.tensor_layout import check_sizes

# The ids of these blobs in a program: ExecuTorch's, and that of programs for Pteron alone, whose graphs have
# operators and shapes that ExecuTorch's runtime does not take.
BACKENDS = ("VulkanBackend", "PteronBackend")
# Four unused bytes, magic, header size, flatbuffer offset and size, constants offset and size.
HEADER = Struct("<4x4sHIIIQ")
NAMED = (1 << 64) - 1
_NULL, _TENSOR = 1, 5
DTYPES = {
    0: DType.BOOL,
    1: DType.U8,
    2: DType.I8,
    3: DType.I32,
    4: DType.F16,
    5: DType.F32,
    6: DType.F64,
    7: DType.I64,
}


def read_delegate(blob: memoryview, name: str, named: Callable[[str], memoryview | None]) -> DelegateGraph:
    """Read a graph; `named` finds constants by key, `name` is the blob's name in messages."""
    graph, inline = _split(blob, name)
    constants = tuple(_constant(table, inline, named) for table in graph.tables(5, "constants"))
    tables = graph.tables(2, "values")
    count = len(tables)
    return DelegateGraph(
        name=name,
        nodes=tuple(_node(table, count) for table in graph.tables(1, "chain")),
        values=tuple(_value(table, count, constants) for table in tables),
        input_ids=graph.indices(3, "input_ids", count, "values", UINT32),
        output_ids=graph.indices(4, "output_ids", count, "values", UINT32),
        constants=constants,
    )


def _split(blob: memoryview, name: str) -> tuple[Table, memoryview]:
    """The graph's root table and the area of inline constants."""
    if len(blob) < HEADER.size:
        raise FormatError(f"{name}: {len(blob)} bytes are too few for a delegate's header")
    magic, size, flatbuffer_at, flatbuffer_size, inline_at, inline_size = HEADER.unpack_from(
        contents(blob[: HEADER.size])
    )
    if magic != b"VH00":
        raise FormatError(f"{name}: expected the identifier 'VH00' at byte 4, found {magic!r}")
    flatbuffer_end = flatbuffer_at + flatbuffer_size
    if size < HEADER.size or flatbuffer_at < size or flatbuffer_end > len(blob):
        raise FormatError(
            f"{name}: the delegate's header, of {size} bytes, claims a graph of {flatbuffer_size} bytes"
            f" at byte {flatbuffer_at} of {len(blob)}"
        )
    if inline_at < flatbuffer_end or inline_at + inline_size > len(blob):
        # A blob without constants may end right after the graph, before the padding.
        if inline_size > 0:
            raise FormatError(
                f"{name}: the delegate's header claims {inline_size} bytes of constants at byte {inline_at}"
                f" of {len(blob)}"
            )
        inline_at = len(blob)
    inline = blob[inline_at : inline_at + inline_size] if inline_size else blob[inline_at:]
    return open_root(blob[:flatbuffer_end], name, b"VK00", "VkGraph", start=flatbuffer_at), inline


def _constant(table: Table, inline: memoryview, named: Callable[[str], memoryview | None]) -> ConstantRecord:
    offset, length = table.integer(0, "offset", UINT64), table.integer(1, "length", UINT64)
    if offset != NAMED:
        if offset + length > len(inline):
            raise table.error("offset", f"{length} bytes at {offset} leave the {len(inline)} inline bytes")
        return ConstantRecord(None, length, inline[offset : offset + length])
    key = table.text(2, "named_key")
    if not key:
        raise table.error("named_key", "a constant has neither an offset nor a name")
    data = named(key)
    if data is not None and len(data) < length:
        raise table.error("length", f"{length} bytes, but {key!r} has only {len(data)}")
    return ConstantRecord(key, length, None if data is None else data[:length])


def _node(table: Table, count: int) -> NodeRecord:
    args = table.indices(2, "args", count, "values")
    if not args:
        raise table.error("args", "an operator call has no arguments")
    return NodeRecord(table.text(1, "name"), args, table.integer(0, "node_id", UINT32))


def _value(table: Table, count: int, constants: tuple[ConstantRecord, ...]) -> VkValue:
    kind, value = table.union(0, "value")
    if kind == _NULL:
        return None
    if value is not None:
        if kind == _TENSOR:
            return _tensor(value, constants)
        if kind in _SIMPLE_VALUES:
            return _SIMPLE_VALUES[kind](value, count)
    raise table.error("value", f"no value of a known kind (type {kind})")


_SIMPLE_VALUES: dict[int, Callable[[Table, int], VkValue]] = {
    2: lambda table, _: table.integer(0, "int_val", INT64),
    3: lambda table, _: table.double(0, "double_val"),
    4: lambda table, _: table.boolean(0, "bool_val"),
    6: lambda table, _: table.integers(0, "items", INT64),
    7: lambda table, _: table.doubles(0, "items"),
    8: lambda table, _: table.booleans(0, "items"),
    9: lambda table, count: VkValueList(table.indices(0, "items", count, "values")),
    10: lambda table, _: table.text(0, "string_val"),
    11: lambda table, _: VkSymInt(table.integer(0, "value")),
}


def _tensor(table: Table, constants: tuple[ConstantRecord, ...]) -> VkTensor:
    type_id = table.integer(0, "datatype", INT8)
    if type_id not in DTYPES:
        raise table.error("datatype", f"element type {type_id} is not one that Pteron knows")
    dtype, dims = DTYPES[type_id], table.integers(1, "dims", UINT32)
    check_sizes(table, "dims", dims, dtype)
    constant_id, memory_id = table.integer(2, "constant_id"), table.integer(3, "mem_obj_id")
    if constant_id >= 0:
        table.index(2, "constant_id", len(constants), "constants")
        needed = prod(dims) * dtype.itemsize
        if constants[constant_id].length < needed:
            raise table.error(
                "constant_id", f"{constants[constant_id].length} bytes where {needed} are needed"
            )
    return VkTensor(
        dtype=dtype,
        dims=dims,
        # A negative id means none; a missing one is 0, a valid id.
        constant_id=constant_id if constant_id >= 0 else None,
        memory_id=memory_id if memory_id >= 0 else None,
    )
