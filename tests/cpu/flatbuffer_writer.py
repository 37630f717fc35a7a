"""Fields enter; the bytes of a flatbuffer leave.

Made for tests that need files no exporter writes: it checks nothing, and an object that is
used several times by one vector is written once and shared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import calcsize, pack, pack_into
from typing import TypeAlias


@dataclass(frozen=True, eq=False)
class Scalar:
    format: str
    value: float


@dataclass(frozen=True, eq=False)
class ScalarVector:
    format: str
    values: Sequence[float]


@dataclass(frozen=True, eq=False)
class Fields:
    """A table: its fields by slot."""

    slots: Mapping[int, Field]


Field: TypeAlias = Scalar | ScalarVector | Fields | Sequence[Fields] | str | bytes


def int8(value: int) -> Scalar:
    return Scalar("b", value)


def int32(value: int) -> Scalar:
    return Scalar("i", value)


def uint32(value: int) -> Scalar:
    return Scalar("I", value)


def int64(value: int) -> Scalar:
    return Scalar("q", value)


def uint64(value: int) -> Scalar:
    return Scalar("Q", value)


def int32s(*values: int) -> ScalarVector:
    return ScalarVector("i", values)


def int64s(*values: int) -> ScalarVector:
    return ScalarVector("q", values)


def uint64s(*values: int) -> ScalarVector:
    return ScalarVector("Q", values)


def write_flatbuffer(root: Fields, identifier: bytes, header: bytes = b"") -> bytes:
    """The buffer, with `header` placed after its first 8 bytes."""
    data = bytearray(4) + identifier + header
    # Offsets point forward only, so whatever is referred to is written after all its referrers.
    pending: deque[tuple[int, Field]] = deque([(0, root)])
    written: dict[int, int] = {}
    while pending:
        position, field = pending.popleft()
        if written.get(id(field), 0) <= position:
            data.extend(bytes(-len(data) % 8))
            written[id(field)] = _write(data, field, pending)
        pack_into("<I", data, position, written[id(field)] - position)
    return bytes(data)


def _write(data: bytearray, field: Field, pending: deque[tuple[int, Field]]) -> int:
    match field:
        case str() | bytes():
            content = field.encode() if isinstance(field, str) else field
            position = len(data)
            data.extend(pack("<I", len(content)) + content + b"\0")
        case ScalarVector(format, values):
            position = len(data)
            data.extend(pack(f"<I{len(values)}{format}", len(values), *values))
        case Fields(slots):
            position = _write_table(data, slots, pending)
        case Scalar():
            raise TypeError("scalars stand inside tables")
        case tables:
            position = len(data)
            data.extend(pack("<I", len(tables)) + bytes(4 * len(tables)))
            pending.extend((position + 4 + 4 * index, table) for index, table in enumerate(tables))
    return position


def _write_table(data: bytearray, slots: Mapping[int, Field], pending: deque[tuple[int, Field]]) -> int:
    offsets = [0] * (max(slots, default=-1) + 1)
    inline = bytearray(4)
    references: list[tuple[int, Field]] = []
    for slot, field in slots.items():
        offsets[slot] = len(inline)
        if isinstance(field, Scalar):
            inline.extend(pack(f"<{field.format}", field.value))
        else:
            references.append((len(inline), field))
            inline.extend(bytes(calcsize("<I")))
    vtable = len(data)
    data.extend(pack(f"<HH{len(offsets)}H", 4 + 2 * len(offsets), len(inline), *offsets))
    position = len(data)
    pack_into("<i", inline, 0, position - vtable)
    data.extend(inline)
    pending.extend((position + offset, field) for offset, field in references)
    return position
