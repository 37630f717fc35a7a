"""The metadata of GGUF files, beside the `gguf` package's reader; damaged files are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_vocabularies import gguf, write_gguf

from pteron.errors import FormatError, UnsupportedError
from pteron.format.gguf import read_header, read_metadata


def test_metadata_is_that_of_the_gguf_package(tmp_path: Path) -> None:
    values = {"flag": True, "name": "é", "whole": -5, "real": 0.5, "list": [1, -2], "texts": ["", "日本"]}

    def fill(writer: Any) -> None:
        writer.add_bool("flag", True)
        writer.add_string("name", "é")
        writer.add_int64("whole", -5)
        writer.add_float64("real", 0.5)
        writer.add_array("list", [1, -2])
        writer.add_array("texts", ["", "日本"])
        for bits in (8, 16, 32, 64):  # numbers that need their sign, or their last bit
            getattr(writer, f"add_uint{bits}")(f"uint{bits}", (1 << bits) - 7)
            getattr(writer, f"add_int{bits}")(f"int{bits}", -7)
        writer.add_float32("float32", 0.25)

    file = write_gguf(tmp_path / "model.gguf", "gpt2", ["a"], fill)
    fields = read_metadata(file)
    assert {name: fields[name] for name in values} == values
    theirs = gguf.GGUFReader(str(file)).fields
    assert fields == {
        name: field.contents() for name, field in theirs.items() if not name.startswith("GGUF.")
    }
    for cut in range(4, file.stat().st_size - 32, 7):  # before the padding
        (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:cut])
        with pytest.raises(FormatError, match=r"^cut\.gguf is damaged"):
            read_metadata(tmp_path / "cut.gguf")


def test_the_version_before_is_read_alike(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", "gpt2", ["a"])
    data = bytearray(file.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    (tmp_path / "older.gguf").write_bytes(data)
    assert read_header(tmp_path / "older.gguf") == read_header(file)


@pytest.mark.parametrize("alignment", [None, 8, 64, 1024])
def test_tensors_are_aligned_as_the_file_says(alignment: int | None, tmp_path: Path) -> None:
    """The first one begins at a multiple of `general.alignment`, by default 32."""

    def fill(writer: Any) -> None:
        if alignment is not None:
            writer.add_custom_alignment(alignment)
        for name, shape in (("a", (3,)), ("b", (5, 2))):
            writer.add_tensor(name, np.ones(shape, np.float32))

    file = write_gguf(tmp_path / "model.gguf", "gpt2", ["a"], fill)
    theirs = {tensor.name: tensor.data_offset for tensor in gguf.GGUFReader(str(file)).tensors}
    assert {tensor.name: tensor.offset for tensor in read_header(file).tensors} == theirs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML" + bytes(20), "is not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1; known are 2 and 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian: convert it again"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "is damaged: 1152921504606846976 fields"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"a", 99) + bytes(9), "a is of unknown type 99"),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"a", 9, 9, 1) + bytes(9), "a is a list of type 9"),
        (b"GGUF" + struct.pack("<IQQQcIQ", 3, 0, 1, 1, b"\xff", 8, 0), "a text that is not UTF-8"),
    ],
)
def test_damaged_metadata(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises((FormatError, UnsupportedError), match=rf"^model\.gguf.*{message}"):
        read_metadata(tmp_path / "model.gguf")


def alignment(kind: int, value: bytes) -> bytes:
    return struct.pack("<IQQQ", 3, 0, 1, 17) + b"general.alignment" + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<IQQQcI", 3, 1, 0, 1, b"a", 9) + bytes(90), "tensor a has 9 dimensions"),
        (struct.pack("<IQQ", 3, 2, 0) + bytes(47), "2 tensors, but only 47 bytes are left"),
        (alignment(4, bytes(4)), "an alignment of 0"),
        (alignment(4, struct.pack("<I", (1 << 20) + 1)), "an alignment of 1048577"),
        (alignment(6, struct.pack("<f", 32)), "an alignment of 32.0"),
    ],
)
def test_damaged_headers(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + content)
    with pytest.raises(FormatError, match=rf"^model\.gguf is damaged: {message}"):
        read_header(tmp_path / "model.gguf")
