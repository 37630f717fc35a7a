"""Delegate graphs that can be changed: a blob as records in lists, and such records back into a blob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from struct import pack

from flatbuffer_writer import (
    Field,
    Fields,
    Scalar,
    ScalarVector,
    int8,
    int32,
    int32s,
    int64,
    int64s,
    uint64,
    write_flatbuffer,
)

from pteron.dtypes import DType
from pteron.format.delegate import read_delegate
from pteron.format.records import VkSymInt, VkTensor, VkValue, VkValueList

_HEADER_BYTES = 32
_DTYPES = (DType.BOOL, DType.U8, DType.I8, DType.I32, DType.F16, DType.F32, DType.F64, DType.I64)  # by code


@dataclass
class Draft:
    """A graph's nodes (name, argument ids), values, border and constants."""

    nodes: list[tuple[str, list[int]]]
    values: list[VkValue]
    inputs: list[int]
    outputs: list[int]
    constants: list[bytes]

    @classmethod
    def of(
        cls, blob: bytes | memoryview, named: Callable[[str], memoryview | None] = lambda key: None
    ) -> Draft:
        """The graph in a blob, its named constants taken in."""
        record = read_delegate(memoryview(blob), "blob", named)
        return cls(
            [(node.name, list(node.args)) for node in record.nodes],
            list(record.values),
            list(record.input_ids),
            list(record.output_ids),
            [bytes(constant.data or b"") for constant in record.constants],
        )

    def tensors(self) -> list[int]:
        return [id for id, value in enumerate(self.values) if isinstance(value, VkTensor)]

    def tensor(self, id: int) -> VkTensor:
        value = self.values[id]
        assert isinstance(value, VkTensor)
        return value

    def resize(self, id: int, dims: tuple[int, ...], dtype: DType | None = None) -> None:
        """Give a tensor other dims, and its constant as many bytes as these need."""
        tensor = replace(self.tensor(id), dims=dims, dtype=dtype or self.tensor(id).dtype)
        if tensor.constant_id is not None:
            needed = min(prod(dims) * tensor.dtype.itemsize, 1 << 18)
            data = self.constants[tensor.constant_id] or b"\0"
            self.constants.append((data * (needed // len(data) + 1))[:needed])
            tensor = replace(tensor, constant_id=len(self.constants) - 1)
        self.values[id] = tensor

    def compact(self) -> Draft:
        """The same graph without what nothing refers to."""
        used = {*self.inputs, *self.outputs, *(id for _, args in self.nodes for id in args)}
        used |= {
            item for id in used if isinstance(found := self.values[id], VkValueList) for item in found.items
        }
        place = {id: index for index, id in enumerate(sorted(used))}
        kept: list[VkValue] = []
        constants: list[bytes] = []
        for id in sorted(used):
            value = self.values[id]
            if isinstance(value, VkValueList):
                value = VkValueList(tuple(place[item] for item in value.items))
            elif isinstance(value, VkTensor) and value.constant_id is not None:
                constants.append(self.constants[value.constant_id])
                value = replace(value, constant_id=len(constants) - 1)
            kept.append(value)
        return Draft(
            [(name, [place[id] for id in args]) for name, args in self.nodes],
            kept,
            [place[id] for id in self.inputs],
            [place[id] for id in self.outputs],
            constants,
        )

    def blob(self) -> bytes:
        """The graph as a file has it, its constants inline."""
        inline = b"".join(data + bytes(-len(data) % 16) for data in self.constants)
        offset, constants = 0, []
        for data in self.constants:
            constants.append(Fields({0: uint64(offset), 1: uint64(len(data))}))
            offset += len(data) + -len(data) % 16
        graph = Fields(
            {
                1: [Fields({1: name, 2: int32s(*args)}) for name, args in self.nodes],
                2: [_value(value) for value in self.values],
                3: ScalarVector("I", self.inputs),
                4: ScalarVector("I", self.outputs),
                5: constants,
            }
        )
        flatbuffer = write_flatbuffer(graph, b"VK00")
        end = _HEADER_BYTES + len(flatbuffer)
        inline_at = end + -end % 16
        header = pack("<4x4sHIIIQ", b"VH00", 30, _HEADER_BYTES, len(flatbuffer), inline_at, len(inline))
        return (header.ljust(_HEADER_BYTES, b"\0") + flatbuffer).ljust(inline_at, b"\0") + inline


def _value(value: VkValue) -> Fields:
    fields: Sequence[Field]
    match value:
        case None:
            return Fields({0: int8(1)})
        case bool():
            kind, fields = 4, [int8(value)]
        case int():
            kind, fields = 2, [int64(max(-(2**63), min(value, 2**63 - 1)))]
        case float():
            kind, fields = 3, [Scalar("d", value)]
        case str():
            kind, fields = 10, [value]
        case VkTensor():
            constant = -1 if value.constant_id is None else value.constant_id
            memory = -1 if value.memory_id is None else value.memory_id
            dims = ScalarVector("I", value.dims)
            kind, fields = 5, [int8(_DTYPES.index(value.dtype)), dims, int32(constant), int32(memory)]
        case VkValueList(items):
            kind, fields = 9, [int32s(*items)]
        case VkSymInt(number):
            kind, fields = 11, [int32(number)]
        case tuple():
            kind, fields = _list(value)
    return Fields({0: int8(kind), 1: Fields(dict(enumerate(fields)))})


def _list(items: tuple[bool, ...] | tuple[int, ...] | tuple[float, ...]) -> tuple[int, list[Field]]:
    if items and all(isinstance(item, bool) for item in items):
        return 8, [bytes(map(bool, items))]
    if any(isinstance(item, float) for item in items):
        return 7, [ScalarVector("d", items)]
    return 6, [int64s(*(max(-(2**63), min(int(item), 2**63 - 1)) for item in items))]
