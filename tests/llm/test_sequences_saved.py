"""A sequence's cache in a file: a round trip gives the same bits, and invalid files are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import MODELS, run_in_threads

import pteron
from pteron import Device, FormatError, InputError
from pteron.llm import LLM, LanguageModel, Piece

NAMES = ["tiny_llama_q4", "tiny_llama_fp32", "tiny_llama_q4_fp16", "tiny_llama_8da4w", "tiny_llama_q4_static"]
TEXT = [1, *range(40, 77)]


def load(name: str, device: Device | None = None, **options: Any) -> LLM:
    return LLM(MODELS / f"{name}.pte", ByteTokenizer(), device=device, **options)


@pytest.fixture(scope="module")
def data(device: Device, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of 38 tokens and three more that were drawn."""
    path = tmp_path_factory.mktemp("saved") / "cache"
    with load("tiny_llama_q4", device) as llm:
        pieces(llm, TEXT)
        assert llm.save(path) == len(TEXT) + 3
    return path.read_bytes()


def pieces(llm: LLM, ids: list[int], count: int = 4) -> list[Piece]:
    return list(llm.generate(ids, max_new_tokens=count, stop_ids=()))


# There and back ---------------------------------------------------------------------------------


CHILD = """
import json, sys
sys.path[:0] = [sys.argv[4]]
from byte_tokenizer import ByteTokenizer
from pteron.llm import LLM
with LLM(sys.argv[1], ByteTokenizer()) as llm:
    count = llm.restore(sys.argv[2])
    text = json.loads(sys.argv[3])
    pieces = llm.generate(text, max_new_tokens=4, stop_ids=())
    found = [[piece.token, piece.logprob.hex()] for piece in pieces]
    reused = llm.statistics.reused_tokens
    llm.reset()
    llm.restore(sys.argv[2])
    bits = llm.model.prefill([9, 8, 7]).tobytes().hex()
print(json.dumps([count, reused, found, bits]))
"""


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", NAMES)
def test_another_process_goes_on(device: Device, tmp_path: Path, name: str) -> None:
    """Another process continues from the file with the same bits, and without a new prefill."""
    path = tmp_path / "cache"
    with load(name, device) as llm:
        drawn = [piece.token for piece in pieces(llm, TEXT)]
        held = [*TEXT, *drawn[:3]]
        assert llm.save(path) == len(held)
        right = pieces(llm, [*held, 5])
        assert llm.statistics.reused_tokens == len(held)
        llm.reset()
        pieces(llm, TEXT)
        bits = llm.model.prefill([9, 8, 7]).tobytes().hex()
    program = str(MODELS / f"{name}.pte")
    command = [
        sys.executable,
        "-c",
        CHILD,
        program,
        str(path),
        json.dumps([*held, 5]),
        str(Path(__file__).parent),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    expected = [[piece.token, piece.logprob.hex()] for piece in right]
    assert json.loads(done.stdout) == [len(held), len(held), expected, bits]


def test_what_is_saved(llm: LLM, tmp_path: Path) -> None:
    """The most recently used sequence, or a given prefix."""
    path, other = tmp_path / "cache", [200, *range(300, 320)]
    pieces(llm, TEXT)
    pieces(llm, other)
    assert llm.pool.live == 2
    assert llm.save(path) == len(other) + 3
    assert llm.save(path, TEXT) == len(TEXT)
    assert llm.save(path, [*TEXT[:20], 7, 7]) == 20
    llm.reset()
    assert llm.restore(path) == 20
    assert llm.model.tokens == TEXT[:20]
    pieces(llm, TEXT)
    assert llm.statistics.reused_tokens == 20
    llm.reset()
    text = "abcdefgh"
    pieces(llm, [*llm.encode(text)])
    assert llm.save(path, text) == 9


def test_a_running_stream(llm: LLM, tmp_path: Path) -> None:
    """Only computed positions are saved, and the running stream is not affected."""
    right = pieces(llm, TEXT, 16)
    llm.reset()
    stream = llm.generate(TEXT, max_new_tokens=16, stop_ids=())
    found = list(islice(stream, 6))
    assert llm.save(tmp_path / "cache") == len(TEXT) + 5
    assert found + list(stream) == right
    llm.reset()
    llm.restore(tmp_path / "cache")
    again = [*TEXT, *(piece.token for piece in right[:6])]
    tokens = [piece.token for piece in pieces(llm, again, 10)]
    assert llm.statistics.reused_tokens == len(TEXT) + 5
    assert tokens == [piece.token for piece in right[6:]]


def test_restored_where_it_is_already(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    pieces(llm, TEXT)
    llm.save(path, TEXT[:30])
    for _ in range(3):
        assert llm.restore(path) == 30
    assert llm.pool.live == 1
    assert len(llm.model.tokens) == len(TEXT) + 3


def test_restored_beside_others(device: Device, tmp_path: Path) -> None:
    """Restores into a new sequence, or into the least recently used at the limit; open streams continue."""
    path, other = tmp_path / "cache", [200, *range(300, 320)]
    with load("tiny_llama_q4", device, sequences=2) as llm:
        right = pieces(llm, other, 8)
        llm.reset()
        pieces(llm, TEXT)
        llm.save(path)
        llm.reset()
        stream = llm.generate(other, max_new_tokens=8, stop_ids=())
        found = [next(stream)]
        assert llm.restore(path) == len(TEXT) + 3
        assert found + list(stream) == right
        pieces(llm, TEXT)
        assert llm.statistics.reused_tokens == len(TEXT) - 1
        streams = [llm.generate([first, 5, 6], max_new_tokens=4, stop_ids=()) for first in (400, 401)]
        for stream in streams:
            next(stream)
        with pytest.raises(InputError, match="2 generations are open"):
            llm.restore(path)


def test_other_digits_and_other_adapters_share(device: Device, tmp_path: Path) -> None:
    """The precision of products is not part of the file's compatibility check."""
    path = tmp_path / "cache"
    with load("tiny_llama_q4", device, digits=2) as llm:
        pieces(llm, TEXT)
        count = llm.save(path)
    with load("tiny_llama_q4", device, digits=3) as llm:
        assert llm.restore(path) == count


def test_threads_that_save_and_restore(llm: LLM, tmp_path: Path) -> None:
    right = [piece.token for piece in pieces(llm, TEXT)]
    llm.save(tmp_path / "cache")

    def work(number: int) -> None:
        for _ in range(4):
            match number % 3:
                case 0:
                    llm.save(tmp_path / "cache", TEXT)
                case 1:
                    assert llm.restore(tmp_path / "cache") >= len(TEXT)
                case 2:
                    assert [piece.token for piece in pieces(llm, TEXT)] == right

    run_in_threads(work, range(6))
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


# Writing ----------------------------------------------------------------------------------------


def test_nothing_to_save(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model has read nothing, so there is no cache to save"):
        llm.save(tmp_path / "cache")
    pieces(llm, TEXT)
    with pytest.raises(InputError, match="has read nothing of this text"):
        llm.save(tmp_path / "cache", [7, 8])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["missing/cache", "."])
def test_where_no_file_can_be(llm: LLM, tmp_path: Path, name: str) -> None:
    pieces(llm, TEXT)
    with pytest.raises(InputError, match="the cache cannot be written"):
        llm.save(f"{tmp_path}/{name}")
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_leaves_what_was_there(llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache"
    pieces(llm, TEXT)
    llm.save(path, TEXT[:9])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written .No space left on device"):
        llm.save(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_states_that_are_no_rows(llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces(llm, TEXT)
    monkeypatch.setattr(LanguageModel, "row_layout", None)
    with pytest.raises(pteron.UnsupportedError, match="cannot be copied or saved"):
        llm.save(tmp_path / "cache")
    with pytest.raises(pteron.UnsupportedError, match="cannot be copied or saved"):
        llm.restore(tmp_path / "cache")


# Files of any other content ---------------------------------------------------------------------


def signed(data: bytes) -> bytes:
    return data[:-32] + sha256(data[:-32]).digest()


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "not a KV cache written by"),
    "another kind": (lambda data: b"ET12" * 100, "not a KV cache written by"),
    "another version": (lambda data: signed(data[:8] + pack("<I", 3) + data[12:]), "version 3"),
    "cut in the magic": (lambda data: data[:12], "the file is damaged"),
    "cut in the header": (lambda data: data[:100], "the file is damaged"),
    "cut in the rows": (lambda data: data[:-5000], "the file is damaged"),
    "longer": (lambda data: data + b"x", "the file is damaged"),
    "a bit of a row": (lambda data: flipped(data, len(data) - 2000), "the file is damaged"),
    "a token": (lambda data: data.replace(b",40,41,", b",40,42,"), "the file is damaged"),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


@pytest.fixture(scope="module")
def reader(device: Device) -> Iterator[LLM]:
    """A model with some cache content, which an invalid file must not change."""
    with load("tiny_llama_q4", device) as made:
        pieces(made, [7, 8, 9])
        yield made


def check_refused(reader: LLM, path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    tokens = list(reader.model.tokens)
    with pytest.raises(FormatError, match=message) as raised:
        reader.restore(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)
    assert (reader.pool.live, reader.model.tokens) == (1, tokens)


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged(reader: LLM, tmp_path: Path, data: bytes, how: str) -> None:
    change, message = DAMAGE[how]
    check_refused(reader, tmp_path / "cache", change(data), message)


def test_other_programs(data: bytes, device: Device, tmp_path: Path) -> None:
    """The same architecture and sizes with other weights or shapes of calls; and one byte of one weight."""
    path = tmp_path / "cache"
    path.write_bytes(data)
    for name in ("tiny_llama_fp32", "tiny_llama_q4_static", "tiny_llama_q4_emb4", "tiny_llama_8da4w"):
        with load(name, device) as llm, pytest.raises(FormatError, match="of another program, or of other w"):
            llm.restore(path)
    program = bytearray((MODELS / "tiny_llama_q4.pte").read_bytes())
    program[-700] ^= 1  # in the last of the weights
    changed = tmp_path / "model.pte"
    changed.write_bytes(program)
    with (
        LLM(changed, ByteTokenizer(), device=device) as llm,
        pytest.raises(FormatError, match="of another program, or of other weights"),
    ):
        llm.restore(path)
    changed.write_bytes((MODELS / "tiny_llama_q4.pte").read_bytes())  # same content at another path
    with LLM(changed, ByteTokenizer(), device=device) as llm:
        assert llm.restore(path) == len(TEXT) + 3


def test_no_file(reader: LLM, tmp_path: Path) -> None:
    with pytest.raises(pteron.errors.MissingFileError, match="there is no such file"):
        reader.restore(tmp_path / "cache")
    with pytest.raises(FormatError, match="this is a directory"):
        reader.restore(tmp_path)
    with pytest.raises(InputError, match="a path must be a string"):
        reader.restore(7)  # type: ignore[arg-type]
