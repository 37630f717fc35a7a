"""Tables of fields enter; the bytes of a flatbuffer leave.

A table is a dict from slots (positions in the schema) to fields:

    write_flatbuffer({0: "name", 1: Scalar(INT32, 5), 2: Vector(UINT32, dims), 3: [table, table]}, b"VK00")

Tables, strings and vectors come after the table that refers to them, since flatbuffer offsets point forward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, pack, pack_into
from typing import TypeAlias

from pteron.format.flatbuffer import INT32, UINT8, UINT32


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Struct
    value: int | float


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of scalars."""

    kind: Struct
    values: Sequence[int | float]


Table: TypeAlias = "Mapping[int, Field]"
Field: TypeAlias = "Scalar | Vector | str | bytes | Table | Sequence[Table]"
_OFFSET = Scalar(UINT32, 0)  # filled in when the field's content has its place


def union(slot: int, kind: int, table: Table) -> dict[int, Field]:
    """The two fields of a union: the type id in `slot`, the table in the slot after it."""
    return {slot: Scalar(UINT8, kind), slot + 1: table}


def write_flatbuffer(
    root: Table, identifier: bytes, reserved: int = 0, *, size_prefixed: bool = False
) -> bytearray:
    """A flatbuffer with `reserved` zero bytes (a multiple of 16) after its identifier, and perhaps with its
    size before it."""
    writer = _Writer()
    start = 4 if size_prefixed else 0
    writer.data += bytes(start + 4) + identifier + bytes(reserved)
    writer.pending.append((start, root))
    while writer.pending:
        position, field = writer.pending.popleft()
        UINT32.pack_into(writer.data, position, writer.append(field) - position)
    if size_prefixed:
        UINT32.pack_into(writer.data, 0, len(writer.data) - start)
    return writer.data


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()
        self.pending: deque[tuple[int, Field]] = deque()  # where an offset is, and what it points to
        self.vtables: dict[bytes, int] = {}

    def append(self, field: Field) -> int:
        """Add a field's content; returns where it begins."""
        match field:
            case str():
                encoded = field.encode()
                return self._bytes(UINT32.pack(len(encoded)) + encoded + b"\0", 4)
            case bytes():
                return self._bytes(UINT32.pack(len(field)) + field, 4)
            case Vector(kind, values):
                content = pack(f"<I{len(values)}{kind.format[-1]}", len(values), *values)
                return self._bytes(content, max(kind.size, 4))
            case Mapping():
                return self._table(field)
            case Scalar():
                raise TypeError("a scalar is stored in its table")
        return self._tables(field)

    def _tables(self, tables: Sequence[Table]) -> int:
        start = self._bytes(UINT32.pack(len(tables)) + bytes(4 * len(tables)), 4)
        self.pending.extend((start + 4 + 4 * index, table) for index, table in enumerate(tables))
        return start

    def _table(self, fields: Table) -> int:
        """A table begins with the distance to its vtable; fields follow, the widest first."""
        inline = [(slot, field if isinstance(field, Scalar) else _OFFSET) for slot, field in fields.items()]
        inline.sort(key=lambda item: -item[1].kind.size)
        offsets = [0] * (max(fields, default=-1) + 1)
        size = 4
        for slot, scalar in inline:
            offsets[slot] = size
            size += scalar.kind.size
        vtable = pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), size, *offsets)
        if vtable not in self.vtables:
            self.vtables[vtable] = self._bytes(vtable, 1)
        start = self._bytes(bytes(size), 8)
        INT32.pack_into(self.data, start, start - self.vtables[vtable])
        for slot, scalar in inline:
            pack_into(scalar.kind.format, self.data, start + offsets[slot], scalar.value)
        for slot, field in fields.items():
            if not isinstance(field, Scalar):
                self.pending.append((start + offsets[slot], field))
        return start

    def _bytes(self, content: bytes, alignment: int) -> int:
        """Append bytes; what follows their first 4 is aligned (items of a vector, fields of a table)."""
        self.data += bytes(-(len(self.data) + 4) % max(alignment, 4))
        start = len(self.data)
        self.data += content
        return start
