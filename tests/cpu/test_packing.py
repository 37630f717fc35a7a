"""What is uploaded of a weight piece by piece is what it packs to as a whole."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pteron.dtypes import DType, Storage
from pteron.format import source
from pteron.format.source import open_bytes
from pteron.graph import Constant
from pteron.ops import Weight
from pteron.ops.operand import _BY_ELEMENT, joined

ROWS, COLUMNS = 37, 24  # of every constant here
# Where a constant is packed otherwise than element by element, all of it is read at once.
WEIGHTS: dict[str, tuple[DType, tuple[int | str, ...], int, Storage]] = {
    "plain": (DType.F32, ("f32",), ROWS * COLUMNS, Storage.F32),
    "plain, narrowed": (DType.F32, ("f16",), ROWS * COLUMNS, Storage.F16),
    "plain, of 64 bits": (DType.I64, ("i32",), ROWS * COLUMNS, Storage.I32),
    "plain, widened": (DType.I8, ("i32",), ROWS * COLUMNS, Storage.I32),
    "words": (DType.U8, (), ROWS * COLUMNS // 4, Storage.U32),
    "words, padded": (DType.U8, (8,), ROWS * 8, Storage.U32),
    "scales by row": (DType.F32, (COLUMNS - 1, ROWS - 1), (ROWS - 1) * (COLUMNS - 1), Storage.F32),
    "part": (DType.F32, ("f16", 0, 2, 5), 5 * COLUMNS, Storage.F16),
    "part, odd": (DType.F32, ("f16", 1, 2, 3), 3 * ROWS, Storage.F16),
}


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> memoryview:
    """Bytes in memory, or in a mapped file; as floats they are small enough for f16."""
    content = np.random.default_rng(3).integers(0, 60, 8 * ROWS * COLUMNS + 16, np.uint8).tobytes()
    if request.param == "memory":
        return memoryview(content)
    monkeypatch.setattr(source, "_SMALL", 0)
    (tmp_path / "weights.bin").write_bytes(content)
    return open_bytes(tmp_path / "weights.bin").view


def weight_of(name: str, place: memoryview, first: int = 16) -> Weight:
    dtype, arguments, count, storage = WEIGHTS[name]
    layout = re.sub(", (narrowed|widened|of 64 bits|odd)", "", name)
    data = place[first : first + ROWS * COLUMNS * dtype.itemsize]
    constant = Constant(name, dtype, (ROWS, COLUMNS), data)
    return Weight(constant, (ROWS, COLUMNS), layout, arguments, count, storage)


def written(weight: Weight, staging: memoryview) -> bytes:
    """A buffer to which the pieces were written, as far as they go."""
    buffer, end = np.zeros(weight.bytes, np.uint8), 0
    for start, piece in weight.pack_in_pieces(staging):
        assert start % 4 == 0
        assert start == end
        end = start + piece.nbytes
        buffer[start:end] = piece.reshape(-1).view(np.uint8)
    assert end == weight.bytes
    return buffer.tobytes()


@pytest.mark.parametrize("size", [8, 64, 1000, 1 << 16])
@pytest.mark.parametrize("name", WEIGHTS)
def test_pieces_are_the_whole(name: str, size: int, place: memoryview) -> None:
    weight = weight_of(name, place)
    assert written(weight, memoryview(bytearray(size))) == weight.pack().tobytes()


@pytest.mark.parametrize("size", [8, 64, 1 << 16])
@pytest.mark.parametrize(
    "names",
    [
        ("words", "words, padded"),
        ("scales by row", "plain"),
        ("part", "plain, narrowed"),
        ("part, odd", "plain, narrowed", "part, odd"),  # of half a word
        ("plain, narrowed", "part, odd"),
    ],
)
def test_pieces_of_weights_that_share_a_buffer(names: tuple[str, ...], size: int, place: memoryview) -> None:
    weights = [weight_of(name, place, index) for index, name in enumerate(names)]
    whole = b"".join(np.ascontiguousarray(weight.pack()).tobytes() for weight in weights)
    assert written(joined(weights), memoryview(bytearray(size))) == whole


def test_every_layout_by_element_is_here() -> None:
    assert WEIGHTS.keys() >= _BY_ELEMENT


@pytest.mark.skipif(sys.platform != "linux", reason="bytes of a map are not copied elsewhere")
@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.parametrize("name", ["plain", "words"])
def test_bytes_that_need_no_packing_are_copied_once(name: str, place: memoryview) -> None:
    staging = np.empty(96, np.uint8)
    for _, piece in weight_of(name, place).pack_in_pieces(staging.data):
        assert np.shares_memory(piece, staging)
