"""Programs of a hub by name: which file a name means, its weights, and a look inside before a download."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serve_only_hub

import pteron
from pteron.cli import main
from pteron.errors import FormatError, GraphError, InputError, PteronError
from pteron.llm.names.model_names import locate
from pteron.names.cache import cached_models

pytest.importorskip("huggingface_hub")
LANGUAGE = Path(pteron.__file__).parent / "models" / "stories15m"
SHARDS = [f"external_weights.shard{index}.ptd" for index in range(3)]


@pytest.fixture
def hub(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    def files(*names: str, folder: str = "") -> dict[str, bytes]:
        return {folder + name: (programs / name).read_bytes() for name in names}

    checkpoint = {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights"}
    models = {
        "me/one": files("external_host.pte", "external_host.shard0.ptd", folder="vulkan/") | {"a.txt": b""},
        "me/damaged": files("mlp.pte") | {"mlp.ptd": b"x" * 100},
        "me/zoo": files("norms.pte", "external_weights.pte", *SHARDS) | files("norms.pte", folder="old/"),
        "me/both": files("mlp.pte") | checkpoint,
        "me/gguf": {"it.gguf": b"GGUF"},
        "me/stories": {file.name: file.read_bytes() for file in LANGUAGE.iterdir() if file.is_file()},
    }
    with serve_only_hub(models, tmp_path, monkeypatch) as served:
        yield served


def test_a_program_with_its_weights(hub: Hub) -> None:
    """The only weight file beside a program is a part of it."""
    located = locate("me/one")
    assert [file for file, _ in hub.downloads] == ["external_host.shard0.ptd", "external_host.pte"]
    assert [file.name for file in located.data] == ["external_host.shard0.ptd"]
    hub.requests.clear()
    assert locate("me/one:external_host.pte").data == located.data
    assert hub.requests == []  # from the cache
    with pytest.raises(FormatError, match=r"mlp\.ptd: not a weight file"):
        pteron.load("me/damaged")


def test_several_weight_files_are_named(hub: Hub) -> None:
    name = "me/zoo:external_weights.pte"
    with pytest.raises(GraphError, match="has no data"):
        pteron.load(name)
    with pteron.load(name, data=[f"me/zoo:{shard}" for shard in SHARDS]) as program:
        assert program.methods == ("forward",)


def test_several_programs_are_listed(hub: Hub) -> None:
    files = r"external_weights\.pte, norms\.pte, old/norms\.pte; weights, for `data`: external_weights\.sh"
    with pytest.raises(InputError, match=rf"me/zoo means 3 programs; name one, as in .*; it has {files}"):
        pteron.load("me/zoo")
    with pytest.raises(InputError, match=rf"me/zoo:none\.pte: me/zoo has no such program; it has {files}"):
        pteron.load("me/zoo:none.pte")
    hub.models["me/zoo"].pop("norms.pte")
    with pteron.load("me/zoo:norms.pte") as program:  # in whichever folder
        assert program.file.name.endswith("old/norms.pte")


def test_programs_are_listed_and_removed(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("me/zoo:norms.pte", "me/one", "me/stories"):
        locate(name)
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "me/" in line]
    found = [["me/one", "program"], ["me/stories", "program"], ["me/zoo:norms.pte", "program"]]
    assert [line[:2] for line in lines] == found
    assert main(["rm", "me/zoo:norms.pte", "me/one"]) == 0
    assert [str(model) for model in cached_models()] == ["me/stories"]


def test_a_name_means_a_program_to_load_and_a_model_to_llm(hub: Hub) -> None:
    for _ in "12":
        with pteron.load("me/both") as program:
            assert program.file.name.endswith("mlp.pte")
        assert locate("me/both").kind == "checkpoint"  # which is then in the cache too


def test_what_is_no_program_is_not_downloaded(hub: Hub) -> None:
    with pytest.raises(InputError, match=r"me/gguf is a GGUF file, not a program: pteron\.llm\.LLM makes"):
        pteron.load("me/gguf")
    assert hub.downloads == []
    folder = locate("me/gguf").path.parent
    with pytest.raises(InputError, match=r"it\.gguf\) is a GGUF file, not a program"):
        pteron.load(folder)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = r"me/one is no path, and a model of a hub needs .* pip install .*\[hub\]"
    for module in ("huggingface_hub", "huggingface_hub.constants"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PteronError, match=sentence):
        pteron.load("me/one")
    assert main(["inspect", "me/one"]) == 1
    assert re.search(sentence, capsys.readouterr().err)


# Before a download -------------------------------------------------------------------------------


def report(capsys: pytest.CaptureFixture[str], *given: object) -> dict[str, object]:
    assert main(["inspect", "--json", "--graph", *map(str, given)]) == 0
    return {**json.loads(capsys.readouterr().out), "name": ""}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("me/one", "external_host.pte"),  # with its weight file
        ("me/zoo:external_weights.pte", "external_weights.pte"),
        ("me/zoo:external_weights.shard1.ptd", "external_weights.shard1.ptd"),
        ("me/both:mlp.pte", "mlp.pte"),
    ],
)
def test_a_look_inside_downloads_nothing(
    name: str, file: str, hub: Hub, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, name)
    assert all(span is not None for _, span in hub.downloads)
    data = ["--data", programs / "external_host.shard0.ptd"] if name == "me/one" else []
    assert found == report(capsys, programs / file, *data)


def test_a_look_inside_reads_little(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """The program that the manifest of a language model's folder names: 11 MB, most of them weights."""
    assert report(capsys, "me/stories") == report(capsys, LANGUAGE)
    assert hub.bytes_of_parts == 1 << 16
    assert main(["inspect", "me/stories"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("stories:model.pte  11.1 MB")
    assert "without a download; `pteron pull me/stories` downloads it" in printed.err


def test_hubs_without_parts(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.has_ranges = False
    assert main(["inspect", "me/both:mlp.pte"]) == 1
    sentence = "the hub sends no parts of this file; `pteron pull me/both:mlp.pte` downloads it"
    assert sentence in capsys.readouterr().err
    hub.has_ranges, hub.excess, hub.cut_after = True, bytes(1 << 20), 1 << 18
    assert main(["inspect", "me/both:mlp.pte"]) == 1  # only what was asked for is read
    assert sentence in capsys.readouterr().err
    hub.excess, hub.cut_after = b"", 100
    assert main(["inspect", "me/both:mlp.pte"]) == 1
    assert "peer closed connection" in capsys.readouterr().err


def test_commands_take_names(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "me/both:mlp.pte", "--gpu", "4060"]) == 0
    assert "4060" in capsys.readouterr().out
    assert pteron.estimate("me/both:mlp.pte").method == "forward"
    assert main(["inspect", "me/both:mlp.pte"]) == 0  # from the cache now
    assert "without a download" not in capsys.readouterr().err
