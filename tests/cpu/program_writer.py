"""Parts of a program enter, as the tables of a `.pte` flatbuffer; the bytes of the file leave."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack

from flatbuffer_writer import Field, Fields, int8, int32s, uint64, write_flatbuffer

# Two segments in an area of 48 bytes.
SEGMENTS = [Fields({0: uint64(0), 1: uint64(8)}), Fields({0: uint64(8), 1: uint64(40)})]


def program_bytes(
    plans: list[Fields],
    slots: Mapping[int, Field] | None = None,
    header_length: int = 0,
    segments: bytes = b"",
) -> bytes:
    """A program with the given plans and other fields; 0 for no extended header, and so no segments."""
    root = Fields({1: plans, **(slots or {})})
    size = len(write_flatbuffer(root, b"ET12", header=bytes(header_length)))
    header = pack("<4sIQQQ", b"eh00", header_length, size, size if segments else 0, len(segments))
    header = header.ljust(header_length, b"\0")[:header_length]
    return write_flatbuffer(root, b"ET12", header=header) + segments


def plan_of(values: list[Fields], **slots: Field) -> Fields:
    """A plan with all its fields; keywords replace them by slot, as `slot3=...`."""
    fields: dict[int, Field] = {0: "forward", 2: values}
    fields.update({int(key.removeprefix("slot")): field for key, field in slots.items()})
    return Fields(fields)


def value_of(kind: int, *fields: Field) -> Fields:
    return Fields({0: int8(kind), 1: Fields(dict(enumerate(fields)))})


def tensor_of(**slots: Field) -> Fields:
    fields: dict[int, Field] = {0: int8(6), 2: int32s(2, 3), 3: bytes([0, 1])}
    fields.update({int(key.removeprefix("slot")): field for key, field in slots.items()})
    return Fields({0: int8(5), 1: Fields(fields)})


def call_of(kind: int, *fields: Field) -> Fields:
    return Fields({0: int8(kind), 1: Fields(dict(enumerate(fields)))})


def chain_of(*calls: Fields) -> list[Fields]:
    return [Fields({2: list(calls)})]
