"""Reading `.ptd` weight files."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from flatbuffer_writer import Field, Fields, int8, int32s, uint32, uint64, write_flatbuffer

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.program import read_program
from pteron.format.tensor_layout import TensorLayout
from pteron.format.weights import WeightFile, read_weights

PROGRAMS = Path(__file__).parent.parent / "fixtures" / "programs"
DATA = bytes(range(32))
SEGMENTS = [Fields({0: uint64(0), 1: uint64(24)}), Fields({0: uint64(24), 1: uint64(8)})]


def weights_bytes(slots: dict[int, Field]) -> bytes:
    root = Fields(slots)
    size = len(write_flatbuffer(root, b"FT01", header=bytes(40)))
    header = pack("<4sIQQQQ", b"FH01", 40, 48, size - 48, size, len(DATA))
    return write_flatbuffer(root, b"FT01", header=header) + DATA


def named(key: str, segment: int, *layout: Fields) -> Fields:
    return Fields({0: key, 1: uint32(segment), **dict(enumerate(layout, 2))})


def read(*names: Fields) -> WeightFile:
    return read_weights(weights_bytes({1: SEGMENTS, 2: list(names)}), "x.ptd")


def test_exported_shards_hold_what_their_program_lacks() -> None:
    paths = sorted(PROGRAMS.glob("external_weights.*.ptd"))
    assert paths
    files = [read_weights(path) for path in paths]
    assert [file.name for file in files] == [str(path) for path in paths]
    assert all(len(data) > 0 for file in files for data in file.data.values())
    assert all(set(file.layouts) == set(file.data) for file in files)
    assert not read_program(PROGRAMS / "external_weights.pte").named_data


def test_names_and_layouts() -> None:
    layout = Fields({0: int8(6), 1: int32s(2, 3), 2: bytes([1, 0])})
    file = read(named("weight", 0, layout), named("blob", 1), named("again", 0))
    assert file.data == {"weight": DATA[:24], "blob": DATA[24:], "again": DATA[:24]}
    assert file.layouts == {"weight": TensorLayout(DType.F32, (2, 3), (1, 0)), "blob": None, "again": None}


@pytest.mark.parametrize(
    "wrong",
    [
        named("", 0),
        named("beyond", 2),
        named("short", 1, Fields({0: int8(6), 1: int32s(2, 3), 2: bytes([0, 1])})),
        named("type", 1, Fields({0: int8(99), 1: int32s(2), 2: bytes([0])})),
        named("order", 1, Fields({0: int8(6), 1: int32s(2), 2: bytes([1])})),
    ],
)
def test_entries_that_are_wrong(wrong: Fields) -> None:
    with pytest.raises(FormatError, match=r"x\.ptd: FlatTensor\.named_data\[0\]"):
        read(wrong)


def test_a_name_used_twice() -> None:
    with pytest.raises(FormatError, match="used twice"):
        read(named("a", 0), named("a", 1))


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (4, b"ET12"),
        (8, b"eh00"),
        (12, pack("<I", 8)),
        (16, pack("<Q", 2**64 - 1)),
        (24, pack("<Q", 2**63)),
        (32, pack("<Q", 0)),
        (32, pack("<Q", 2**64 - 1)),
        (40, pack("<Q", 2**64 - 1)),
    ],
)
def test_headers_that_are_wrong(position: int, content: bytes) -> None:
    data = bytearray(weights_bytes({1: SEGMENTS}))
    data[position : position + len(content)] = content
    with pytest.raises(FormatError, match=r"x\.ptd: "):
        read_weights(data, "x.ptd")


def test_a_truncated_file() -> None:
    data = weights_bytes({1: SEGMENTS})
    for size in (3, 20, 47, 60, len(data) - 1):
        with pytest.raises(FormatError, match=r"x\.ptd: "):
            read_weights(data[:size], "x.ptd")
