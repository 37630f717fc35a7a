"""An export that fails leaves complete files only: those of an earlier export, and nothing else."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import InputError, PteronError
from pteron.llm.export import export_llm

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

TOKENIZER = Path(pteron.__file__).parent / "models" / "stories15m" / "tokenizer.bin"
DIM, HIDDEN, LAYERS, HEADS, VOCABULARY, CONTEXT = 64, 64, 1, 2, 32, 64


@pytest.fixture
def source(tmp_path: Path) -> Path:
    weights = VOCABULARY * DIM + LAYERS * (2 * DIM + 4 * DIM * DIM + 3 * DIM * HIDDEN) + DIM
    count = weights + CONTEXT * DIM // HEADS
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    header = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, HEADS, VOCABULARY, CONTEXT)
    (folder / "model.bin").write_bytes(header + np.ones(count, np.float32).tobytes())
    (folder / "tokenizer.bin").write_bytes(TOKENIZER.read_bytes())
    return folder / "model.bin"


def exported(source: Path, out: Any, **options: Any) -> Path:
    return export_llm(source, out, **{"max_seq_len": 16, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=repr)
def test_ended_at_any_write(
    source: Path, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write fails after half of the file."""
    out = tmp_path / "out"
    exported(source, out, name="earlier")
    earlier, at = contents(out), 0
    assert set(earlier) == {"model.pte", "pteron.json", "tokenizer.bin"}
    while True:
        written = 0

        def half(write: Callable[..., object], at: int = at) -> Callable[..., object]:
            def wrapper(file: Path, content: Any, *arguments: Any, **options: Any) -> object:
                nonlocal written
                written += 1
                if written > at:
                    write(file, content[: len(content) // 2], *arguments, **options)
                    raise error
                return write(file, content, *arguments, **options)

            return wrapper

        with monkeypatch.context() as patched:
            for name in ("write_bytes", "write_text"):
                patched.setattr(Path, name, half(getattr(Path, name)))
            try:
                exported(source, out, name="later")
                break
            except (KeyboardInterrupt, PteronError):
                pass
        assert contents(out) == earlier, at
        at += 1
    assert at >= 2
    assert set(contents(out)) == set(earlier)
    assert contents(out) != earlier


def test_a_template_of_an_earlier_export_goes(source: Path, tmp_path: Path) -> None:
    exported(source, tmp_path / "out")
    (tmp_path / "out" / "chat_template.jinja").write_text("{{ messages }}")
    assert "chat_template.jinja" not in contents(exported(source, tmp_path / "out"))


def test_links_are_not_followed(source: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("model.pte", "pteron.json", "tokenizer.bin", "chat_template.jinja"):
        (out / name).symlink_to(precious)
    exported(source, out)
    assert precious.read_text() == "precious"
    assert contents(out)["model.pte"][4:8] == b"ET12"


def test_places_that_cannot_be_written_to(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below", "a" * 5000, "a\0b"):
        with pytest.raises(PteronError, match="cannot be written to"):
            exported(source, out)
    (tmp_path / "out" / "model.pte").mkdir(parents=True)
    with pytest.raises(PteronError, match="cannot be written to"):
        exported(source, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".export*"))
    with pytest.raises(InputError, match="a path must be"):
        exported(source, 5)


def test_a_full_disk_is_not_called_damaged_weights(source: Path, tmp_path: Path) -> None:
    code = "import sys; from pteron.llm.export import export_llm; export_llm(*sys.argv[1:], max_seq_len=16)"
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", sys.executable, "-c", code]  # 4 KB
    done = subprocess.run([*limited, source, tmp_path / "out"], capture_output=True, encoding="utf-8")
    said = f"PteronError: {tmp_path / 'out'} cannot be written to: [Errno 27] File too large"
    assert done.stderr.splitlines()[-1] == f"pteron.errors.{said}"
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("name", ["group_size", "max_seq_len", "max_context_len"])
@pytest.mark.parametrize("value", ["x", 2.5, True, [4]], ids=repr)
def test_options_of_wrong_types(source: Path, tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be an integer"):
        exported(source, tmp_path / "out", **{name: value})
    assert not (tmp_path / "out").exists()
