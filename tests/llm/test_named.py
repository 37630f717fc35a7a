"""Models by name in every command: a GGUF file is built into a program, once; a server has the name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron.cli import main
from pteron.llm import LLM
from pteron.llm.names.models import BUNDLED
from pteron.tools.workload import Decode

TEXT = " upon a time"


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GGUF file whose program is that of stories15M."""
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "pteron.llm.export.export_llm", lambda _, folder, **__: shutil.copytree(BUNDLED["stories15m"], folder)
    )
    (tmp_path / "my-model.gguf").write_bytes(b"GGUF\x03\0\0\0")
    return tmp_path / "my-model.gguf"


def test_the_library(gguf: Path) -> None:
    with LLM(gguf) as llm:
        assert llm("Once", max_new_tokens=3) == TEXT
    with LLM(str(gguf)) as llm:
        assert llm("Once", max_new_tokens=3) == TEXT
    assert len([*(gguf.parent / "cache" / "programs").iterdir()]) == 1


@pytest.mark.long(every=3)
@pytest.mark.parametrize("named", ["path", "stories15m", "--model"])
def test_commands(named: str, gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"path": [str(gguf)], "--model": ["--model", "stories15m"]}.get(named, [named])
    assert main(["generate", *model, "--prompt", "Once", "--max-new-tokens", "3", "--quiet"]) == 0
    assert capsys.readouterr().out == f"Once{TEXT}\n"
    assert main(["chat", *model, "--prompt", "Once", "--max-new-tokens", "3", "--quiet"]) == 0
    assert main(["inspect", *model, "--method", "get_n_layers"]) == 0
    assert "model.pte  11.1 MB" in capsys.readouterr().out


@pytest.mark.long
def test_measurements(gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model by name is a language model: its default is a decode step."""
    assert main(["profile", "stories15m", "--runs", "1", "--warmup", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["what"] == "decode at context 100"
    assert (
        main(["bench", "--model", str(gguf), "--decode", "--runs", "1", "--warmup", "1", "--tokens", "1"])
        == 0
    )
    assert "decode at context 100" in capsys.readouterr().out
    assert (
        pteron.profile(str(gguf), Decode(3), runs=1, warmup=0, ceilings=False).what == "decode at context 3"
    )


@pytest.mark.long(every=2)
@pytest.mark.parametrize("options", [[], ["--name", "other"]])
def test_the_name_of_a_served_model(
    options: list[str], gguf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastapi")
    names: list[Any] = []
    monkeypatch.setattr(
        "pteron.serving.http.run", lambda app, *_, **__: names.append(app.state.server.models.names[0])
    )
    for model in ("stories15m", str(gguf)):
        assert main(["serve", model, "--port", "0", *options]) == 0
    assert names == (["other", "other"] if options else ["stories15m", "my-model"])
