"""The bytes of a flatbuffer enter; tables with typed, checked fields leave.

Nothing in the bytes is trusted. Every offset, vtable, length and string is checked when it
is read, and a violation raises a FormatError that names the file, the field and the byte.
Reading is lazy: only requested fields are read.
"""

from __future__ import annotations

from struct import Struct, unpack_from

from pteron.errors import FormatError
from pteron.format.source import contents

INT8, UINT8, INT32, UINT32 = Struct("<b"), Struct("<B"), Struct("<i"), Struct("<I")
INT64, UINT64, DOUBLE = Struct("<q"), Struct("<Q"), Struct("<d")
_VTABLE_ENTRY, _VTABLE_HEADER = Struct("<H"), Struct("<HH")


class Buffer:
    """The bytes being read, and their name."""

    __slots__ = ("name", "view")

    def __init__(self, view: memoryview, name: str) -> None:
        self.view = view
        self.name = name

    def error(self, path: str, offset: int, problem: str) -> FormatError:
        return FormatError(f"{self.name}: {path}, at byte {offset}: {problem}")

    def require(self, path: str, offset: int, size: int) -> None:
        """Check that `size` bytes at `offset` are within the buffer."""
        if offset < 0 or offset + size > len(self.view):
            raise self.error(
                path, offset, f"{size} bytes here are outside the buffer of {len(self.view)} bytes"
            )

    def follow(self, path: str, position: int) -> int:
        """Where the forward offset stored at `position` leads."""
        self.require(path, position, 4)
        distance: int = UINT32.unpack_from(self.view, position)[0]
        if distance == 0:
            raise self.error(path, position, "an offset points at itself")
        return position + distance


class Table:
    """One table: its fields are read by slot (their position in the schema) and named for messages."""

    __slots__ = ("_buffer", "_size", "_start", "_vtable", "_vtable_size", "path")

    def __init__(self, buffer: Buffer, start: int, path: str) -> None:
        buffer.require(path, start, 4)
        vtable = start - INT32.unpack_from(buffer.view, start)[0]
        buffer.require(path, vtable, 4)
        vtable_size, size = _VTABLE_HEADER.unpack_from(buffer.view, vtable)
        if vtable_size < 4 or vtable_size % 2 or size < 4:
            raise buffer.error(path, vtable, f"a vtable of {vtable_size} bytes for a table of {size} bytes")
        buffer.require(path, vtable, vtable_size)
        buffer.require(path, start, size)
        if vtable < start + size and start < vtable + vtable_size:
            raise buffer.error(path, start, "the table overlaps its own vtable")
        self._buffer, self._start, self._size = buffer, start, size
        self._vtable, self._vtable_size = vtable, vtable_size
        self.path = path

    def error(self, name: str, problem: str) -> FormatError:
        """The error for a field whose bytes are readable but whose content is not acceptable."""
        return self._buffer.error(f"{self.path}.{name}", self._start, problem)

    def integer(self, slot: int, name: str, kind: Struct = INT32) -> int:
        position = self._field(slot, name, kind.size)
        return 0 if position is None else int(kind.unpack_from(self._buffer.view, position)[0])

    def boolean(self, slot: int, name: str) -> bool:
        return self.integer(slot, name, UINT8) != 0

    def double(self, slot: int, name: str) -> float:
        position = self._field(slot, name, 8)
        return 0.0 if position is None else float(DOUBLE.unpack_from(self._buffer.view, position)[0])

    def index(self, slot: int, name: str, limit: int, of: str, kind: Struct = INT32) -> int:
        """An integer that must be an index into `limit` entries called `of`."""
        index = self.integer(slot, name, kind)
        if not 0 <= index < limit:
            raise self.error(name, f"{index} is not an index into {limit} {of}")
        return index

    def text(self, slot: int, name: str) -> str:
        """A string; an absent one is empty."""
        start, length = self._vector(slot, name, 1)
        try:
            return str(self._buffer.view[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise self.error(name, "the text is not valid UTF-8") from None

    def blob(self, slot: int, name: str) -> memoryview:
        """A vector of bytes, as a view; an absent one is empty."""
        start, length = self._vector(slot, name, 1)
        return self._buffer.view[start : start + length]

    def integers(self, slot: int, name: str, kind: Struct = INT32) -> tuple[int, ...]:
        start, count = self._vector(slot, name, kind.size)
        return unpack_from(f"<{count}{kind.format[-1]}", self._buffer.view, start)

    def doubles(self, slot: int, name: str) -> tuple[float, ...]:
        return self.integers(slot, name, DOUBLE)

    def booleans(self, slot: int, name: str) -> tuple[bool, ...]:
        return tuple(value != 0 for value in self.integers(slot, name, UINT8))

    def indices(
        self, slot: int, name: str, limit: int, of: str, kind: Struct = INT32, lowest: int = 0
    ) -> tuple[int, ...]:
        """Integers that must each be an index into `limit` entries called `of`."""
        indices = self.integers(slot, name, kind)
        if indices and not (lowest <= min(indices) and max(indices) < limit):
            wrong = next(index for index in indices if not lowest <= index < limit)
            raise self.error(name, f"{wrong} is not an index into {limit} {of}")
        return indices

    def table(self, slot: int, name: str) -> Table | None:
        position = self._field(slot, name, 4)
        if position is None:
            return None
        path = f"{self.path}.{name}"
        return Table(self._buffer, self._buffer.follow(path, position), path)

    def required_table(self, slot: int, name: str) -> Table:
        table = self.table(slot, name)
        if table is None:
            raise self.error(name, "this field is missing")
        return table

    def tables(self, slot: int, name: str) -> tuple[Table, ...]:
        start, count = self._vector(slot, name, 4)
        paths = (f"{self.path}.{name}[{index}]" for index in range(count))
        return tuple(
            Table(self._buffer, self._buffer.follow(path, start + 4 * index), path)
            for index, path in enumerate(paths)
        )

    def union(self, slot: int, name: str) -> tuple[int, Table | None]:
        """The type id in `slot` and the table in the slot after it; a union without a type is empty."""
        kind = self.integer(slot, f"{name}_type", UINT8)
        return kind, self.table(slot + 1, name) if kind else None

    def _vector(self, slot: int, name: str, item_size: int) -> tuple[int, int]:
        """The start of a vector's items and their count, all within the buffer."""
        position = self._field(slot, name, 4)
        if position is None:
            return 0, 0
        path = f"{self.path}.{name}"
        start = self._buffer.follow(path, position)
        self._buffer.require(path, start, 4)
        count: int = UINT32.unpack_from(self._buffer.view, start)[0]
        self._buffer.require(path, start + 4, count * item_size)
        return start + 4, count

    def _field(self, slot: int, name: str, size: int) -> int | None:
        """Where a field's `size` inline bytes are, or None where the file leaves it at its default."""
        entry = 4 + 2 * slot
        if entry + 2 > self._vtable_size:
            return None
        offset: int = _VTABLE_ENTRY.unpack_from(self._buffer.view, self._vtable + entry)[0]
        if offset == 0:
            return None
        if offset < 4 or offset + size > self._size:
            raise self.error(name, f"the field's offset {offset} leaves its table of {self._size} bytes")
        return self._start + offset


def open_root(view: memoryview, name: str, identifier: bytes, root: str, start: int = 0) -> Table:
    """The root table, called `root` in messages, of the flatbuffer that begins at `start`.

    A view of a mapped file is copied to memory first: reading each field from the file would be slow.
    """
    view = contents(view)
    buffer = Buffer(view, name)
    buffer.require(root, start, 8)
    found = bytes(view[start + 4 : start + 8])
    if found != identifier:
        expected = identifier.decode()
        raise buffer.error(root, start + 4, f"expected the identifier {expected!r}, found {found!r}")
    return Table(buffer, buffer.follow(root, start), root)
