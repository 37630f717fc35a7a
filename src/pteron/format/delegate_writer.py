"""A delegate's graph enters, as records; the blob that `read_delegate` reads leaves.

Constants are named data of the program: the blob holds their keys only.
"""

from __future__ import annotations

from pteron.dtypes import DType
from pteron.format.delegate import DTYPES, HEADER, NAMED
from pteron.format.flatbuffer import DOUBLE, INT8, INT32, INT64, UINT8, UINT32, UINT64
from pteron.format.flatbuffer_writer import Scalar, Table, Vector, union, write_flatbuffer
from pteron.format.records import (
    ConstantRecord,
    DelegateGraph,
    NodeRecord,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)

_CODES: dict[DType, int] = {dtype: code for code, dtype in DTYPES.items()}
_ALIGNMENT = 16
_BUFFER, _WIDTH_PACKED = 0, 0  # storage type and memory layout, for runtimes that have others


def write_delegate(graph: DelegateGraph) -> bytes:
    """The blob of a graph whose constants all have keys."""
    root: Table = {
        0: "0",
        1: [_node(index, node) for index, node in enumerate(graph.nodes)],
        2: [_value(value) for value in graph.values],
        3: Vector(UINT32, graph.input_ids),
        4: Vector(UINT32, graph.output_ids),
        5: [_constant(constant) for constant in graph.constants],
    }
    flatbuffer = write_flatbuffer(root, b"VK00")
    start = _aligned(HEADER.size)
    end = start + _aligned(len(flatbuffer))
    header = HEADER.pack(b"VH00", HEADER.size, start, len(flatbuffer), end, 0)
    return (header.ljust(start, b"\0") + flatbuffer).ljust(end, b"\0")


def _node(index: int, node: NodeRecord) -> Table:
    return {0: Scalar(UINT32, index), 1: node.name, 2: Vector(INT32, node.args)}


def _constant(constant: ConstantRecord) -> Table:
    if constant.key is None:
        raise ValueError("a constant needs a key")
    return {0: Scalar(UINT64, NAMED), 1: Scalar(UINT64, constant.length), 2: constant.key}


def _value(value: VkValue) -> Table:
    match value:
        case None:
            return union(0, 1, {})
        case bool():
            return union(0, 4, {0: Scalar(UINT8, value)})
        case int():
            return union(0, 2, {0: Scalar(INT64, value)})
        case float():
            return union(0, 3, {0: Scalar(DOUBLE, value)})
        case VkTensor():
            return union(0, 5, _tensor(value))
        case VkValueList(items):
            return union(0, 9, {0: Vector(INT32, items)})
        case str():
            return union(0, 10, {0: value})
        case VkSymInt(initial):
            return union(0, 11, {0: Scalar(INT32, initial)})
    if all(isinstance(item, bool) for item in value) and value:
        return union(0, 8, {0: Vector(UINT8, value)})
    if any(isinstance(item, float) for item in value):
        return union(0, 7, {0: Vector(DOUBLE, value)})
    return union(0, 6, {0: Vector(INT64, value)})


def _tensor(tensor: VkTensor) -> Table:
    return {
        0: Scalar(INT8, _CODES[tensor.dtype]),
        1: Vector(UINT32, tensor.dims),
        2: Scalar(INT32, -1 if tensor.constant_id is None else tensor.constant_id),
        3: Scalar(INT32, -1 if tensor.memory_id is None else tensor.memory_id),
        4: Scalar(UINT8, _BUFFER),
        5: Scalar(UINT8, _WIDTH_PACKED),
    }


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
