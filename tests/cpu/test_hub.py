"""Models of a hub, against a server on this machine: downloads, the cache, and what fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serve_only_hub

from pteron.cli import main
from pteron.errors import InputError, PteronError, UnsupportedError
from pteron.llm.adapter_files import read_adapter
from pteron.llm.names.local_models import local_models, remove_model
from pteron.llm.names.model_names import locate, locate_program
from pteron.names.cache import HubModel, cached_models, find_cached, repository_folder
from pteron.names.download import Download, download_adapter

hub_library = pytest.importorskip("huggingface_hub")
GGUF = b"GGUF" + bytes(range(256)) * 4000
CONFIG, NEW = b'{"model_type": "llama"}', b'{"model_type": "llama", "new": 1}'
CHECKPOINT = {"config.json": CONFIG, "model.safetensors": b"weights" * 1000, "tokenizer.json": b'{"a": 1}'}
MODELS = {
    "me/gguf": {"it-Q4_K_M.gguf": GGUF, "it-Q8_0.gguf": GGUF + b"8", "README.md": b"read me"},
    "me/llama": {**CHECKPOINT, "README.md": b"read me", "onnx/model.onnx": b"x"},
    "me/lora": {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights", "README.md": b""},
    "me/text": {"README.md": b"read me"},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_only_hub(MODELS, tmp_path, monkeypatch) as served:
        yield served


def test_a_checkpoint(hub: Hub) -> None:
    located = locate("me/llama")
    assert (located.kind, located.name) == ("checkpoint", "me/llama")
    assert {file.name: file.read_bytes() for file in located.path.iterdir()} == CHECKPOINT
    named = [path.rpartition("/")[2] for method, path, _ in hub.requests if method == "HEAD"]
    assert named[-1] == "config.json"  # an incomplete folder is no model
    hub.requests.clear()
    assert locate("me/llama") == located
    assert hub.requests == []  # from the cache, without the hub


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b'{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}', "quantised by AWQ"),
        (b'{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}', "quantised by FP8"),
        (b'{"model_type": "bert"}', "model type 'bert' is not supported; known are"),
    ],
)
def test_checkpoints_that_cannot_be_read_are_not_downloaded(hub: Hub, config: bytes, message: str) -> None:
    hub.models = {"me/other": {**CHECKPOINT, "config.json": config}}
    with pytest.raises(UnsupportedError, match=f"me/other: .*{message}"):
        locate("me/other")
    assert [file for file, _ in hub.downloads] == ["config.json"]
    model = HubModel.parse("me/other")
    assert model is not None
    assert find_cached(model) is None


def test_a_gguf_file(hub: Hub) -> None:
    lines: list[str] = []
    located = locate("me/gguf:Q8_0", lines.append)
    assert (located.kind, located.name) == ("gguf", "me/gguf:Q8_0")
    assert located.path.read_bytes() == GGUF + b"8"
    assert hub.downloads == [("it-Q8_0.gguf", None)]
    assert isinstance(lines[0], Download)
    assert (str(lines[0]), lines[0].done, lines[0].total) == (
        "downloading me/gguf:Q8_0, 1.0 MB",
        0,
        len(GGUF) + 1,
    )
    assert locate("me/gguf:it-Q8_0.gguf").path == located.path
    assert len(hub.downloads) == 1


def test_an_interrupted_download_continues(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hub_library.constants, "DOWNLOAD_CHUNK_SIZE", 100_000)
    hub.cut_after = 500_000
    monkeypatch.setattr("time.sleep", interrupt)  # the library waits before it tries again
    with pytest.raises(KeyboardInterrupt):
        locate("me/gguf:Q4_K_M")
    assert find_cached(HubModel("me/gguf")) is None
    (incomplete,) = (model for model in local_models() if model.hub)
    assert (incomplete.name, incomplete.kind, incomplete.source_bytes) == ("me/gguf", "incomplete", 500_000)
    hub.cut_after = None
    assert locate("me/gguf:Q4_K_M").path.read_bytes() == GGUF
    assert hub.downloads == [("it-Q4_K_M.gguf", None), ("it-Q4_K_M.gguf", "bytes=500000-")]
    assert [model.kind for model in local_models() if model.hub] == ["GGUF"]


def test_other_bytes_are_refused(hub: Hub) -> None:
    """Here, those of an interrupted download that something else has changed."""
    import hashlib

    partial = repository_folder("me/gguf") / "blobs" / f"{hashlib.sha256(GGUF).hexdigest()}.pteron-partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x" * 1000)
    with pytest.raises(PteronError, match=r"it-Q4_K_M.gguf of me/gguf: its sha256 is \w+, expected \w+"):
        locate("me/gguf")
    assert not partial.exists()
    assert locate("me/gguf").path.read_bytes() == GGUF


def test_more_bytes_than_stated(hub: Hub) -> None:
    """The next attempt continues a file, so that must not have become too long."""
    hub.excess = b"12345678"
    with pytest.raises(PteronError, match=r"the hub sends more than the 1,024,004 bytes of this file"):
        locate("me/gguf")
    hub.excess = b""
    assert locate("me/gguf").path.read_bytes() == GGUF


def test_names_that_lead_out_of_the_cache(hub: Hub, tmp_path: Path) -> None:
    before = {*tmp_path.rglob("*")}
    hub.commit = "../../../out/of"
    with pytest.raises(PteronError, match=r"me/gguf: the hub names the commit '\.\./.*', which is no commit"):
        locate("me/gguf")
    hub.commit, hub.etag = "c0ffee", "../../../out"
    with pytest.raises(
        PteronError, match=r"it-Q4_K_M\.gguf of me/gguf: its etag '.*' leads out of the cache"
    ):
        locate("me/gguf")
    assert {path.relative_to(tmp_path).parts[0] for path in {*tmp_path.rglob("*")} - before} == {"hub"}


def test_lists_that_cannot_be_read(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hub.models, "me/odd", {"n" * 5000 + ".gguf": GGUF})
    for _ in "12":  # the list is in the cache
        with pytest.raises(PteronError, match="me/odd cannot be downloaded"):
            locate("me/odd")


def test_a_new_version(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    old = locate("me/llama").path
    hub.commit = "beef" + "0" * 36
    monkeypatch.setitem(hub.models, "me/llama", {**CHECKPOINT, "config.json": NEW})
    hub.requests.clear()
    assert locate("me/llama").path == old
    assert main(["pull", "me/llama", "--no-build"]) == 0
    new = Path(capsys.readouterr().out.strip())
    assert new.name == hub.commit
    assert (new / "config.json").read_bytes() == NEW
    assert [file for file, _ in hub.downloads] == ["config.json"]  # the other files are the same
    assert locate("me/llama").path == new


def test_an_incomplete_checkpoint_is_not_used(hub: Hub) -> None:
    (locate("me/llama").path / "model.safetensors").unlink()
    hub.requests.clear()
    assert (locate("me/llama").path / "model.safetensors").exists()
    assert hub.requests


def snapshot(hub: Hub, repository: str, *files: str) -> None:
    """Files in the cache as another tool downloads them."""
    for file in files:
        hub_library.hf_hub_download(repository, file)


def test_a_name_does_not_depend_on_the_cache(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the cache that is not the one of the plain name."""
    locate("me/gguf:Q8_0")
    assert find_cached(HubModel("me/gguf")) is None
    assert locate("me/gguf").path.name == "it-Q4_K_M.gguf"
    monkeypatch.setitem(hub.models, "me/llama", {**MODELS["me/llama"], "it-Q4_K_M.gguf": GGUF})
    assert locate("me/llama:Q4_K_M").kind == "gguf"
    assert locate("me/llama").kind == "checkpoint"


def test_files_of_other_tools(hub: Hub) -> None:
    snapshot(hub, "me/gguf", "it-Q8_0.gguf")
    assert find_cached(HubModel("me/gguf")) is None
    assert find_cached(HubModel("me/gguf", tag="Q8_0")) is None  # the hub might have two of them
    assert find_cached(HubModel("me/gguf", tag="it-Q8_0.gguf")) is not None
    assert [model.name for model in local_models() if model.hub] == ["me/gguf:it-Q8_0.gguf"]
    assert locate("me/gguf").path.name == "it-Q4_K_M.gguf"
    snapshot(hub, "me/llama", *CHECKPOINT)
    hub.requests.clear()
    assert locate("me/llama").kind == "checkpoint"
    assert hub.requests == []


def test_a_snapshot_without_a_tokenizer_is_incomplete(hub: Hub) -> None:
    snapshot(hub, "me/llama", "config.json", "model.safetensors")
    assert find_cached(HubModel("me/llama")) is None
    assert (locate("me/llama").path / "tokenizer.json").exists()
    (locate("me/llama").path / "tokenizer.json").unlink()
    assert find_cached(HubModel("me/llama")) is None


def test_a_revision_is_removed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents that another revision has too stay, and so do programs built from them."""

    def export_llm(source: Path, folder: Path, **_: object) -> None:
        folder.mkdir()
        (folder / "pteron.json").write_text("{}", "utf-8")

    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    first, second = hub.commit, "beef" + "0" * 36
    old = locate("me/llama").path
    program, shared = locate_program("me/llama").path, locate_program("me/gguf").path
    hub.commit = second
    monkeypatch.setitem(hub.models, "me/llama", {**CHECKPOINT, "config.json": NEW})
    new, new_program = locate(f"me/llama@{second}").path, locate_program(f"me/llama@{second}").path
    assert locate_program(f"me/gguf@{second}").path == shared
    assert str(HubModel("me/llama", second)) in [model.name for model in local_models()]
    assert remove_model(f"me/llama@{second}") > len(NEW)
    assert (new.exists(), new_program.exists(), old.exists(), program.exists()) == (False, False, True, True)
    assert locate("me/llama").path == old
    remove_model(f"me/gguf@{second}")
    assert shared.exists()
    assert locate("me/gguf").path.read_bytes() == GGUF
    assert remove_model(f"me/llama@{first}") > 0  # by its commit: the branch goes too
    assert not repository_folder("me/llama").exists()
    with pytest.raises(InputError, match="nothing in the cache belongs to me/gguf@v9"):
        remove_model("me/gguf@v9")


def test_a_branch_with_the_same_commit_is_removed(hub: Hub) -> None:
    path = locate("me/llama").path
    (repository_folder("me/llama") / "refs" / "v1").write_text(hub.commit, "utf-8")
    assert remove_model("me/llama@v1") == 0
    assert find_cached(HubModel("me/llama")) == path
    assert main(["rm", "me/llama@main"]) == 0
    assert not repository_folder("me/llama").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("me/none", r"me/none does not exist, neither as a path nor at http://127.*HF_TOKEN"),
        ("me/llama@v9", "me/llama has no revision 'v9'"),
        ("me/text", r"me/text has no model that can be used: .*; it has only README.md"),
        ("me/lora", r"me/lora is a LoRA adapter, not a model; give the model .* with --lora"),
        ("me/gguf:Q2_K", "no GGUF file of me/gguf matches 'Q2_K'; it has it-Q4_K_M.gguf, it-Q8_0.gguf"),
    ],
)
def test_names_that_do_not_exist(name: str, sentence: str, hub: Hub) -> None:
    with pytest.raises(InputError, match=sentence):
        locate(name)


def test_an_adapter(hub: Hub) -> None:
    folder = download_adapter(HubModel("me/lora"))
    assert {file.name for file in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    hub.requests.clear()
    assert download_adapter(HubModel("me/lora")) == folder
    assert hub.requests == []
    assert download_adapter(HubModel("me/gguf", tag="Q8_0")).name == "it-Q8_0.gguf"
    with pytest.raises(InputError, match=r"me/llama is no LoRA adapter: it lacks adapter_config\.json or"):
        download_adapter(HubModel("me/llama"))
    with pytest.raises(UnsupportedError, match=r"adapter sql .*: peft_type None is not supported"):
        read_adapter("sql", "me/lora")


def test_without_the_library(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PteronError, match=r"me/it is no path, and .* pip install .*\[hub,llm\]."):
        locate("me/it")


def test_private_and_gated_models(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.is_gated = True
    with pytest.raises(PteronError, match=r"only to users who accepted its terms.*HF_TOKEN"):
        locate("me/gguf")
    hub.is_gated, hub.token = False, "another"
    with pytest.raises(InputError, match=r"a private model needs `hf auth login` or HF_TOKEN"):
        locate("me/gguf")
    hub.token = "secret"
    assert locate("me/gguf").path.read_bytes() == GGUF


def test_a_hub_that_does_not_answer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PteronError, match=r"me/gguf cannot be downloaded from http://127\.0\.0\.1:9: "):
        locate("me/gguf")


def test_a_cache_that_cannot_be_written_to(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    with pytest.raises(PteronError, match=r"file.hub cannot be written to: \[Errno 20\] Not a directory"):
        locate("me/gguf")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "~/.cache/huggingface/hub")  # there is no home
    with pytest.raises(PteronError, match="set HF_HOME to a folder"):
        locate("me/gguf")


def test_list_and_remove(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("me/llama", "me/gguf:Q8_0", "me/gguf:Q4_K_M"):
        locate(name)
    assert list(map(str, cached_models())) == ["me/gguf:it-Q4_K_M.gguf", "me/gguf:it-Q8_0.gguf", "me/llama"]
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3] == ["me/gguf:it-Q4_K_M.gguf", "GGUF", "1.0", "MB", "-"]
    assert lines[5] == ["me/llama", "checkpoint", "7.0", "kB", "-"]
    assert main(["rm", "me/gguf:Q8_0", "me/llama"]) == 0
    assert capsys.readouterr().out == "removed me/gguf:Q8_0: 1.0 MB\nremoved me/llama: 7.0 kB\n"
    assert list(map(str, cached_models())) == ["me/gguf:it-Q4_K_M.gguf"]
    assert len([*(repository_folder("me/gguf") / "blobs").iterdir()]) == 1
    assert main(["rm", "me/gguf"]) == 0
    assert not repository_folder("me/gguf").exists()
    assert main(["rm", "me/gguf"]) == 1


@pytest.mark.parametrize("name", ["me/gguf:model.gguf", "me/gguf@main", "me/gguf"])
@pytest.mark.parametrize("linked", ["file", "folder", "reference", "repository"])
def test_files_outside_the_cache_stay(name: str, linked: str, hub: Hub, tmp_path: Path) -> None:
    """A file, a snapshot or a repository that is a link, and a reference that leads elsewhere."""
    mine = tmp_path / "mine" / "model.gguf"
    mine.parent.mkdir()
    mine.write_bytes(GGUF)
    repository = repository_folder("me/gguf")
    if linked == "repository":
        (tmp_path / "disk").mkdir()
        repository.parent.mkdir(parents=True, exist_ok=True)
        repository.symlink_to(tmp_path / "disk")
    for folder in ("refs", "snapshots", "blobs"):
        (repository / folder).mkdir(parents=True)
    snapshot = repository / "snapshots" / "c0ffee"
    (repository / "refs" / "main").write_text("../../../mine" if linked == "reference" else "c0ffee", "utf-8")
    if linked == "folder":
        snapshot.symlink_to(mine.parent)
    else:
        snapshot.mkdir()
        (snapshot / "model.gguf").symlink_to(mine)
    is_known = linked != "reference" or name == "me/gguf"
    assert main(["rm", name]) == (0 if is_known else 1)
    assert (repository.exists() or repository.is_symlink()) == (not is_known)
    assert mine.read_bytes() == GGUF


def test_a_program_is_built_from_a_download(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def export_llm(source: Path, folder: Path, **_: object) -> None:
        folder.mkdir()
        (folder / "pteron.json").write_text("{}", "utf-8")
        (folder / "model.pte").write_bytes(source.read_bytes())

    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    located = locate_program("me/gguf")
    assert located.name == "me/gguf"
    assert locate_program("me/gguf:Q4_K_M").path == located.path
    (listed,) = (model for model in local_models() if model.hub)
    assert listed.programs == (located.path,)
    assert listed.program_bytes > len(GGUF)
    program_bytes = listed.program_bytes
    assert remove_model("me/gguf") == program_bytes + len(GGUF)
    assert not located.path.exists()


def test_environment_variables(hub: Hub, tmp_path: Path) -> None:
    """HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE, in a process of their own."""
    hub.token = "from-environment"
    variables = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.address, "HF_TOKEN": hub.token}

    def pull(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pteron", "pull", "me/gguf", "--no-build"]
        environment = {**os.environ, **variables, **more}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    offline = pull(HF_HUB_OFFLINE="1")
    assert offline.returncode == 1
    assert "me/gguf is neither a path nor in the cache" in offline.stderr
    assert "HF_HUB_OFFLINE forbids downloads" in offline.stderr
    online = pull()
    assert Path(online.stdout.strip()).is_relative_to(tmp_path / "home" / "hub")
    assert online.stderr == "downloading me/gguf, 1.0 MB\n"
    again = pull(HF_HUB_OFFLINE="1")
    assert (again.stdout, again.stderr) == (online.stdout, "")
    shutil.rmtree(next((tmp_path / "home" / "hub").rglob("pteron")))  # as after another tool's download
    unlisted = pull(HF_HUB_OFFLINE="1")
    assert "the cache has it-Q4_K_M.gguf, which needs its full name after a colon" in unlisted.stderr
