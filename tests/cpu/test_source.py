"""Files that change while they are open give errors: no process is killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import FormatError, InputError
from pteron.format import source
from pteron.format.source import contents, open_bytes, pieces
from pteron.llm import load_tokenizer

linux = pytest.mark.skipif(sys.platform != "linux", reason="files do not shrink under a map elsewhere")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are mapped whatever their size."""
    monkeypatch.setattr(source, "_SMALL", 0)


def shorten(path: Path) -> None:
    os.truncate(path, 4096)


def copy_over(path: Path) -> None:
    path.write_bytes(b"another file")


def write_into(path: Path) -> None:
    """As long as before, other bytes."""
    later = path.stat().st_mtime_ns + 10**9
    with path.open("r+b") as file:
        file.write(b"x" * 100)
    os.utime(path, ns=(later, later))


@linux
@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize("change", [shorten, copy_over, write_into])
def test_a_changed_file_is_an_error(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(256)) * 256)
    view = open_bytes(path).view
    assert bytes(contents(view[300:310])) == bytes(range(44, 54))
    change(path)
    for part in (view[:10], view[60_000:], view):
        with pytest.raises(FormatError, match=r"weights\.bin changed since it was loaded: load it again"):
            contents(part)


@linux
@pytest.mark.usefixtures("mapped")
def test_a_replaced_file_stays_what_it_was(tmp_path: Path) -> None:
    """The usual way to write a file anew does not touch the one that is open."""
    path, other = tmp_path / "weights.bin", tmp_path / "new"
    path.write_bytes(b"old" * 5000)
    view = open_bytes(path).view
    other.write_bytes(b"new")
    other.replace(path)
    assert bytes(contents(view)) == b"old" * 5000


@linux
@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize("size", [1, 100, 4096, 65_535, 65_536, 100_000])
def test_pieces_use_the_given_memory(tmp_path: Path, size: int) -> None:
    path, staging = tmp_path / "weights.bin", bytearray(size)
    path.write_bytes(bytes(range(256)) * 256)
    view = open_bytes(path).view[3:]
    found = b""
    for piece in pieces(view[: 100 * size], memoryview(staging)):
        assert piece.obj is staging
        assert len(piece) <= size
        found += bytes(piece)
    assert found == (bytes(range(256)) * 256)[3 : 3 + 100 * size]
    assert b"".join(pieces(memoryview(b"in memory"), memoryview(staging))) == b"in memory"
    assert list(pieces(view[:0], memoryview(staging))) == []


@linux
@pytest.mark.usefixtures("mapped")
def test_a_read_that_takes_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_READ_MAX", 7)
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(100)))
    assert bytes(contents(open_bytes(path).view[3:60])) == bytes(range(3, 60))


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"0123456789")
    assert source.read_file(path, 10) == b"0123456789"
    with pytest.raises(FormatError, match="10 bytes; at most 9 are read"):
        source.read_file(path, 9)


def test_views_with_the_same_bytes() -> None:
    data, copy = memoryview(b"abab"), memoryview(bytearray(b"abab"))
    assert source.is_same(data, data)
    assert source.is_same(data, copy)
    assert source.is_same(data[:2], data[2:])
    assert not source.is_same(data, data[:2])
    assert not source.is_same(data[:2], copy[1:3])


def test_a_small_file_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "small.pte"
    path.write_bytes(b"0123456789")
    view = open_bytes(path).view
    path.write_bytes(b"")
    assert bytes(contents(view)) == b"0123456789"


def test_what_is_no_file() -> None:
    wrong: list[Any] = [12, None, memoryview(bytes(8))[::2], np.zeros((0, 3)).data, ["a.pte"]]
    for given in wrong:
        with pytest.raises(InputError, match="by its path or as bytes"):
            pteron.load(given)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes there")
def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "config.json")
    for read in (pteron.load, open_bytes, lambda path: load_tokenizer(path.parent)):
        with pytest.raises(FormatError, match=r"config\.json: this is not a regular file"):
            read(tmp_path / "config.json")
