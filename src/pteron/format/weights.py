"""The bytes of a `.ptd` file enter; its named data leave, with layouts where they are tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct

from pteron.errors import FormatError
from pteron.format.flatbuffer import Table, open_root
from pteron.format.source import FileBytes, Source, contents, is_same, open_bytes
from pteron.format.stored import read_named_data, read_segments
from pteron.format.tensor_layout import TensorLayout, read_layout

_HEADER_AT = 8
# Magic, length, flatbuffer offset and size, segments offset and size.
_HEADER = Struct("<4sIQQQQ")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A whole `.ptd` file; all data are views into it."""

    name: str
    data: Mapping[str, memoryview]
    layouts: Mapping[str, TensorLayout | None]
    """None if the data are not a tensor."""


def read_weights(source: Source, name: str | None = None) -> WeightFile:
    """Read a weight file; `name` is used in messages (by default, its path)."""
    file = open_bytes(source, name)
    flatbuffer, segment_area = _split(file)
    root = open_root(flatbuffer, file.name, b"FT01", "FlatTensor")
    segments = read_segments(root.tables(1, "segments"), segment_area)
    tables = root.tables(2, "named_data")
    data = read_named_data(tables, segments)
    layouts = {key: _layout(table, data[key]) for key, table in zip(data, tables, strict=True)}
    return WeightFile(file.name, data, layouts)


def load_weights(sources: Iterable[Source]) -> dict[str, memoryview]:
    """The named tensors of weight files; a later file may not redefine a name."""
    named: dict[str, memoryview] = {}
    for source in sources:
        weights = read_weights(source)
        for key, view in weights.data.items():
            if key in named and not is_same(named[key], view):
                raise FormatError(f"{weights.name}: {key!r} differs from the one in another weight file")
            named[key] = view
    return named


def _layout(table: Table, data: memoryview) -> TensorLayout | None:
    described = table.table(2, "tensor_layout")
    if described is None:
        return None
    layout = read_layout(described, dtype_slot=0, sizes_slot=1, dim_order_slot=2)
    if len(data) < layout.byte_size:
        raise table.error("tensor_layout", f"{len(data)} bytes where {layout.byte_size} are needed")
    return layout


def _split(file: FileBytes) -> tuple[memoryview, memoryview]:
    """The flatbuffer and the area of segments behind it."""
    view = file.view
    if len(view) < _HEADER_AT + _HEADER.size:
        raise FormatError(f"{file.name}: the file ends inside its header")
    magic, length, flatbuffer_at, flatbuffer_size, segments_at, segments_size = _HEADER.unpack_from(
        contents(view[: _HEADER_AT + _HEADER.size]), _HEADER_AT
    )
    flatbuffer_end = flatbuffer_at + flatbuffer_size
    if magic != b"FH01" or length < _HEADER.size:
        raise FormatError(f"{file.name}: not a weight file: found {magic!r} at byte {_HEADER_AT}")
    if flatbuffer_end > segments_at or segments_at + segments_size > len(view):
        raise FormatError(
            f"{file.name}: the header claims a flatbuffer up to byte {flatbuffer_end} and {segments_size}"
            f" bytes of segments at byte {segments_at} in a file of {len(view)}; it may be truncated"
        )
    # The header is inside the flatbuffer, which starts at the file's first byte.
    return view[:flatbuffer_end], view[segments_at:]
