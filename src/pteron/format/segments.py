"""The tables that describe data behind a flatbuffer enter; views of that data leave.

Programs and weight files end in an area of segments, and give some of them names.
"""

from __future__ import annotations

from collections.abc import Iterable

from pteron.format.flatbuffer import UINT32, UINT64, Table


def read_segments(tables: Iterable[Table], area: memoryview) -> tuple[memoryview, ...]:
    """One view per segment; offsets count from the start of `area`."""
    return tuple(_segment(table, area) for table in tables)


def _segment(table: Table, area: memoryview) -> memoryview:
    offset, size = table.integer(0, "offset", UINT64), table.integer(1, "size", UINT64)
    if offset + size > len(area):
        raise table.error("size", f"{size} bytes at {offset} leave the {len(area)} bytes of segment data")
    return area[offset : offset + size]


def read_named_data(tables: Iterable[Table], segments: tuple[memoryview, ...]) -> dict[str, memoryview]:
    """The segments that have a name, by name."""
    named: dict[str, memoryview] = {}
    for table in tables:
        key = table.text(0, "key")
        if not key or key in named:
            raise table.error("key", f"the name {key!r} is empty or used twice")
        named[key] = segments[table.index(1, "segment_index", len(segments), "segments", UINT32)]
    return named
