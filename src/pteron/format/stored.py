"""A program's root table and segments enter; the bytes of its constants and delegates leave.

Bytes are stored in one of two places: inside the flatbuffer, as older exporters did, or in
the segments that follow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pteron.format.flatbuffer import INT8, UINT32, UINT64, Table


@dataclass(frozen=True, slots=True)
class Subsegments:
    """Tensors stored one after another in one segment, by where each begins."""

    segment: memoryview
    offsets: tuple[int, ...]

    def find(self, index: int) -> memoryview | None:
        """From the start of a tensor to the end of the segment; None for an unknown index."""
        if index >= len(self.offsets) or self.offsets[index] > len(self.segment):
            return None
        return self.segment[self.offsets[index] :]


@dataclass(frozen=True, slots=True)
class StoredData:
    """Everything a program stores outside its methods."""

    segments: tuple[memoryview, ...]
    inline_delegates: tuple[memoryview, ...]
    inline_constants: tuple[memoryview, ...]
    constants: Subsegments
    initial_values: tuple[Subsegments, ...]

    def constant(self, tensor: Table, index: int) -> memoryview:
        """The bytes of constant `index`, for `tensor`, up to the end of their segment."""
        data = self.constants.find(index)
        if data is None and index < len(self.inline_constants):
            data = self.inline_constants[index]
        if data is None:
            raise tensor.error("data_buffer_idx", f"there is no constant {index}")
        return data

    def initial_value(self, tensor: Table, group: int, index: int) -> memoryview:
        """The initial bytes of the mutable `tensor`, up to the end of their segment."""
        data = self.initial_values[group].find(index) if group < len(self.initial_values) else None
        if data is None:
            raise tensor.error("data_buffer_idx", f"there is no initial value {index} in group {group}")
        return data

    def delegate(self, reference: Table) -> memoryview:
        places = ((self.inline_delegates, "inline delegates"), (self.segments, "segments"))
        blobs, of = places[reference.index(0, "location", len(places), "places of data", INT8)]
        return blobs[reference.index(1, "index", len(blobs), of, UINT32)]


def read_stored_data(program: Table, segments: tuple[memoryview, ...]) -> StoredData:
    constants = program.table(5, "constant_segment")
    return StoredData(
        segments=segments,
        inline_delegates=tuple(item.blob(0, "data") for item in program.tables(3, "backend_delegate_data")),
        inline_constants=tuple(item.blob(0, "storage") for item in program.tables(2, "constant_buffer")),
        constants=_subsegments(constants, segments) if constants else Subsegments(memoryview(b""), ()),
        initial_values=tuple(
            _subsegments(table, segments) for table in program.tables(6, "mutable_data_segments")
        ),
    )


def _subsegments(table: Table, segments: tuple[memoryview, ...]) -> Subsegments:
    offsets = table.integers(1, "offsets", UINT64)
    # Without constants the offsets hold one placeholder, and the segment need not exist.
    if len(offsets) <= 1:
        return Subsegments(memoryview(b""), ())
    return Subsegments(segments[table.index(0, "segment_index", len(segments), "segments", UINT32)], offsets)


def read_segments(tables: Iterable[Table], area: memoryview) -> tuple[memoryview, ...]:
    """One view per segment; offsets count from the start of `area`."""
    segments = []
    for table in tables:
        offset, size = table.integer(0, "offset", UINT64), table.integer(1, "size", UINT64)
        if offset + size > len(area):
            raise table.error("size", f"{size} bytes at {offset} leave the {len(area)} bytes of segment data")
        segments.append(area[offset : offset + size])
    return tuple(segments)


def read_named_data(tables: Iterable[Table], segments: tuple[memoryview, ...]) -> dict[str, memoryview]:
    """The segments that have a name, by name."""
    named: dict[str, memoryview] = {}
    for table in tables:
        key = table.text(0, "key")
        if not key or key in named:
            raise table.error("key", f"the name {key!r} is empty or used twice")
        named[key] = segments[table.index(1, "segment_index", len(segments), "segments", UINT32)]
    return named
