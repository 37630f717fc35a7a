"""The flatbuffer reader: every kind of field, and every kind of invalid bytes."""

from __future__ import annotations

import re
from struct import pack, pack_into

import pytest
from flatbuffer_writer import (
    Fields,
    Scalar,
    ScalarVector,
    int8,
    int32,
    int32s,
    int64,
    uint32,
    write_flatbuffer,
)

from pteron.errors import FormatError
from pteron.format.flatbuffer import INT8, INT64, UINT32, UINT64, Table, open_root


def root_of(fields: Fields) -> Table:
    return open_bytes_of(write_flatbuffer(fields, b"TEST"))


def open_bytes_of(data: bytes | bytearray) -> Table:
    return open_root(memoryview(data), "model.pte", b"TEST", "Root")


def table_bytes(
    inline: bytes, *offsets: int, soffset: int | None = None, size: int | None = None
) -> bytearray:
    """Root offset, identifier, a vtable at byte 8, and its table."""
    vtable = pack(
        f"<HH{len(offsets)}H", 4 + 2 * len(offsets), 4 + len(inline) if size is None else size, *offsets
    )
    table = pack("<i", len(vtable) if soffset is None else soffset) + inline
    return bytearray(pack("<I4s", 8 + len(vtable), b"TEST") + vtable + table)


def test_scalars_and_their_defaults() -> None:
    table = root_of(
        Fields({0: int8(-3), 1: uint32(2**32 - 1), 2: int64(-(2**63)), 3: Scalar("d", 0.5), 5: int8(1)})
    )
    assert table.integer(0, "a", INT8) == -3
    assert table.integer(1, "b", UINT32) == 2**32 - 1
    assert table.integer(2, "c", INT64) == -(2**63)
    assert table.double(3, "d") == 0.5
    assert table.integer(4, "absent") == 0
    assert table.boolean(5, "f") is True
    assert table.integer(6, "behind the vtable") == 0
    assert table.double(7, "absent") == 0.0
    assert table.boolean(8, "absent") is False


def test_vectors_strings_and_tables() -> None:
    child = Fields({0: int32(7)})
    numbers = {1: int32s(1, -2), 2: ScalarVector("d", (0.5,)), 3: ScalarVector("B", (0, 1, 2))}
    table = root_of(
        Fields({0: "gewürz", **numbers, 4: b"raw", 5: child, 6: [child, child], 7: int8(4), 8: child})
    )
    assert table.text(0, "text") == "gewürz"
    assert table.integers(1, "integers") == (1, -2)
    assert table.doubles(2, "doubles") == (0.5,)
    assert table.booleans(3, "booleans") == (False, True, True)
    assert table.blob(4, "blob") == memoryview(b"raw")
    inner = table.table(5, "child")
    assert inner is not None
    assert inner.integer(0, "x") == 7
    assert [item.path for item in table.tables(6, "children")] == ["Root.children[0]", "Root.children[1]"]
    kind, value = table.union(7, "union")
    assert kind == 4
    assert value is not None


def test_absent_vectors_are_empty() -> None:
    table = root_of(Fields({}))
    assert table.text(0, "x") == ""
    assert table.integers(0, "x") == ()
    assert table.tables(0, "x") == ()
    assert table.table(0, "x") is None
    assert table.union(0, "x") == (0, None)
    assert not table.blob(0, "x")
    with pytest.raises(FormatError, match="missing"):
        table.required_table(0, "x")


def test_indices_are_checked_and_the_wrong_one_is_named() -> None:
    table = root_of(Fields({0: int32s(0, 3, 2), 1: int32(3), 2: int32s(-1), 3: int32(-1)}))
    assert table.indices(0, "args", 4, "values") == (0, 3, 2)
    assert table.index(1, "op", 4, "operators") == 3
    assert table.indices(2, "items", 1, "values", lowest=-1) == (-1,)
    with pytest.raises(FormatError, match=re.escape("model.pte: Root.args, at byte")):
        table.indices(0, "args", 3, "values")
    with pytest.raises(FormatError, match="3 is not an index into 3 operators"):
        table.index(1, "op", 3, "operators")
    with pytest.raises(FormatError, match="-1 is not an index"):
        table.indices(2, "items", 1, "values")
    with pytest.raises(FormatError, match="-1 is not an index into 3 operators"):
        table.index(3, "op", 3, "operators")


def test_another_identifier() -> None:
    with pytest.raises(FormatError, match="8 bytes here are outside"):
        open_bytes_of(bytes(7))
    with pytest.raises(FormatError, match="expected the identifier 'TEST', found b'NOPE'"):
        open_bytes_of(write_flatbuffer(Fields({}), b"NOPE"))


def patched(data: bytearray, form: str, at: int, value: int) -> bytearray:
    pack_into(form, data, at, value)
    return data


@pytest.mark.parametrize(
    "data",
    [
        *(patched(table_bytes(b""), "<I", 0, root) for root in (0, 0x7FFFFFFF, 0xFFFFFFFF)),
        *(table_bytes(bytes(8), 4, soffset=vtable) for vtable in (0, 2, -4, 1000, 2**31 - 1, -(2**31))),
        *(table_bytes(bytes(4), 4, size=size) for size in (0, 3, 9, 0xFFFF)),
        *(patched(table_bytes(bytes(4), 4), "<H", 8, size) for size in (0, 2, 5, 0xFFFE)),
    ],
    ids=lambda data: data.hex()[:40],
)
def test_roots_tables_and_vtables_outside_the_buffer(data: bytearray) -> None:
    with pytest.raises(FormatError, match="Root, at byte"):
        open_bytes_of(data)


def test_a_vtable_may_follow_its_table() -> None:
    data = pack("<I4siiHHH", 8, b"TEST", -8, 42, 6, 8, 4)
    assert open_bytes_of(data).integer(0, "x") == 42


@pytest.mark.parametrize("offset", [1, 3, 5, 0xFFFF])
def test_fields_outside_their_table(offset: int) -> None:
    with pytest.raises(FormatError, match=re.escape("Root.x, at byte")):
        open_bytes_of(table_bytes(bytes(4), offset)).integer(0, "x")


@pytest.mark.parametrize("count", [9, 2**29, 2**30 + 1, 2**31, 2**32 - 1])
def test_vectors_longer_than_the_buffer(count: int) -> None:
    table = open_bytes_of(table_bytes(pack("<IIQ", 4, count, 0), 4, size=8))
    for read in (table.integers, table.doubles, table.booleans, table.tables, table.text, table.blob):
        with pytest.raises(FormatError, match=re.escape("Root.x, at byte")):
            read(0, "x")


def test_items_of_several_bytes_end_within_the_buffer() -> None:
    table = open_bytes_of(table_bytes(pack("<IIQ", 4, 3, 0), 4, size=8))
    assert table.booleans(0, "x") == (False, False, False)
    for read in (table.integers, table.doubles, table.tables):
        with pytest.raises(FormatError, match=re.escape("Root.x, at byte")):
            read(0, "x")


@pytest.mark.parametrize("offset", [0, 2**31, 2**32 - 1])
def test_references_outside_the_buffer(offset: int) -> None:
    table = open_bytes_of(table_bytes(pack("<I", offset), 4))
    for read in (table.table, table.text, table.integers):
        with pytest.raises(FormatError, match=re.escape("Root.x, at byte")):
            read(0, "x")


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(FormatError, match=re.escape("Root.x, at byte") + ".*UTF-8"):
        root_of(Fields({0: b"\xff\xfe"})).text(0, "x")


def test_an_integer_vector_keeps_64_bits() -> None:
    values = (2**64 - 1, 0)
    assert root_of(Fields({0: ScalarVector("Q", values)})).integers(0, "x", UINT64) == values
