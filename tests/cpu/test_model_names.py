"""Names of models: what a path or a name means, which files of a hub's model are used, and what is said of
other files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pteron.cli import main
from pteron.errors import InputError, PteronError, UnsupportedError
from pteron.llm.names import local_models, program_cache
from pteron.llm.names.model_names import locate, locate_program
from pteron.llm.names.program_cache import build, built_folder
from pteron.names.cache import HubModel
from pteron.names.kinds import Located, models_of_folder, recognise
from pteron.names.selection import select_files
from pteron.runtime import load


def write(folder: Path, **files: str) -> Path:
    """A folder with files; `_` in a name without a dot is one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name if "." in name else name.replace("_", "."))).write_text(content, "utf-8")
    return folder


# Kinds -------------------------------------------------------------------------------------------


def test_kinds(tmp_path: Path, programs: Path) -> None:
    checkpoint = write(tmp_path / "llama", config_json="{}", model_safetensors="")
    folder = write(tmp_path / "folder", model_pte="", pteron_json="{}")
    gguf = write(tmp_path / "one", my_gguf="GGUF") / "my.gguf"
    program = programs / "mlp.pte"
    assert recognise(checkpoint) == Located("checkpoint", checkpoint, "llama")
    assert recognise(folder) == Located("program", folder, "folder")
    assert recognise(gguf) == Located("gguf", gguf, "my")
    assert recognise(gguf.parent) == Located("gguf", gguf, "one")
    assert recognise(program) == Located("program", program, "mlp")
    wide = tmp_path / "wide.bin"  # llama2.c
    wide.write_bytes(b"\x80\x02\0\0\0\x07\0\0")
    assert recognise(wide) == Located("checkpoint", wide, "wide")
    other = write(tmp_path / "other", llama_pte="x")
    assert recognise(other) == Located("program", other / "llama.pte", "other")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("model.pt", b"PK\x03\x04rest", "a zip archive, as torch.save and torch.export.save write"),
        (
            "pytorch_model.bin",
            b"\x80\x02}q",
            "a pickle, as torch.save wrote before version 1.6; load it with",
        ),
        ("model.onnx", b"\x08\x07\x12\x07pytorch", "an ONNX model; export the PyTorch model"),
        ("model.safetensors", b"\x40\0\0\0\0\0\0\0{}", "weights (safetensors) without the model"),
        ("weights", b"\x40\0\0\0\0\0\0\0{}", "weights (safetensors) without the model"),
        ("config.json", b'{"model_type": "llama"}', "a JSON file; give the folder of the model"),
        ("cat.png", b"\x89PNG\r\n\x1a\n", "an image (PNG); a model is a .pte program, a GGUF file"),
        ("cat.gguf", b"\xff\xd8\xff\xe0", "an image (JPEG); a model is a .pte program, a GGUF file"),
        ("model.gguf", b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull` in its folder"),
        ("model.gguf", b"\n<!DOCTYPE html><html>", "a web page (HTML); the download gave a page"),
        ("model.tflite", b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        ("model.tar.gz", b"\x1f\x8b\x08", "an archive (gzip); unpack it"),
        ("MODEL.ONNX", b"\x08\x07\x12\x07pytorch", "an ONNX model; export the PyTorch model"),
        ("notes.txt", b"letters {", "a text file; a model is a .pte program"),  # as a header of weights
        ("notes.txt", b"hello", "a text file; a model is a .pte program, a GGUF file"),
        ("pyproject.toml", b"[project]\n", "a text file; a model is a .pte program, a GGUF file"),
        ("model.pte", b"", "an empty file; download or export it again"),
    ],
)
def test_other_files_are_named(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=name) as raised:
        recognise(file)
    assert sentence in str(raised.value)
    if content:
        with pytest.raises(UnsupportedError) as refused:
            load(file)
        assert sentence in str(refused.value)


def test_a_gguf_file_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(UnsupportedError, match=r"a language model \(GGUF\); give it to pteron.llm.LLM"):
        load(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "is empty"),
        ({"a_gguf": "", "b_gguf": ""}, "has several models; name one of them: a.gguf, b.gguf"),
        ({"adapter_config.json": ""}, "has a LoRA adapter"),
        ({"model_safetensors": ""}, "has weights but no config.json"),
        ({"config_json": "{}", "pytorch_model.bin": ""}, "PyTorch pickles (pytorch_model.bin); convert them"),
        ({"config_json": "{}"}, "has a config.json but no weights"),
        (
            {"readme_md": ""},
            "has no model: neither a program (model.pte), nor config.json with *.safetensors",
        ),
        ({"pteron_json": '{"model": "a.pte"}'}, "its pteron.json names a.pte, which is missing"),
        (
            {
                "config_json": "{}",
                "a_safetensors": "",
                "model_safetensors_index_json": '{"weight_map": {"x": "b.safetensors"}}',
            },
            "names weights that are missing: b.safetensors",
        ),
    ],
)
def test_folders_without_a_model(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", **files)
    with pytest.raises(InputError) as raised:
        recognise(folder)
    assert sentence in str(raised.value)


def test_models_in_a_folder(tmp_path: Path, programs: Path) -> None:
    """Files and folders; of a split file the first part, and neither projectors nor what is hidden."""
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "mmproj-a.gguf", ".old.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    write(tmp_path / "llama", config_json="{}", model_safetensors="")
    write(tmp_path / ".cache", model_pte="x")
    write(tmp_path / "notes", readme_md="")
    write(tmp_path, notes_txt="", model_bin="GGUF", broken_gguf="GGML")
    assert models_of_folder(tmp_path) == {
        "a": tmp_path / "a.gguf",
        "b": tmp_path / "b-00001-of-00002.gguf",
        "llama": tmp_path / "llama",
    }
    assert models_of_folder(tmp_path / "llama") == {}


# Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", HubModel("Qwen/Qwen2.5-0.5B-Instruct")),
        ("me/it:model.gguf", HubModel("me/it", tag="model.gguf")),
        ("me/it:Q4_K_M", HubModel("me/it", tag="Q4_K_M")),
        ("me/it@v1.0:sub/a.gguf", HubModel("me/it", "v1.0", "sub/a.gguf")),
        ("hf.co/me/it:Q4_K_M", HubModel("me/it", tag="Q4_K_M")),
        ("hf://me/it", HubModel("me/it")),
        ("https://huggingface.co/me/it", HubModel("me/it")),
        *((path, None) for path in ("it", "./me/it", "/me/it", "a/b/c", "models/it.pte", "models/it.gguf")),
        *((path, None) for path in ("me/it@../x", "../it", "C:/it", "me/", "~/it", "")),
    ],
)
def test_names_of_a_hub(name: str, model: HubModel | None) -> None:
    assert HubModel.parse(name) == model
    if model is not None and "huggingface.co" not in name:
        assert str(model) == name.removeprefix("hf.co/").removeprefix("hf://")


def test_a_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "stories15m", model_pte="")
    write(tmp_path / "me" / "it", model_pte="")
    assert locate("stories15m").path == Path("stories15m")
    assert locate("me/it") == Located("program", Path("me/it"), "it")
    (tmp_path / "stories15m" / "model.pte").unlink()
    (tmp_path / "stories15m").rmdir()
    assert locate("stories15m").name == "stories15m"
    assert (locate_program("stories15m").path / "model.pte").exists()


@pytest.mark.parametrize("name", ["models/it.gguf", "a/b/c", "model.pte"])
def test_paths_that_do_not_exist(name: str) -> None:
    with pytest.raises(InputError, match=r"does not exist$"):
        locate(name)
    with pytest.raises(InputError, match=r"does not exist$"):
        locate(Path("stories15m"))  # a path is never a name


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("llama3.2", "stories15m, and models of a hub as owner/name"),
        ("qwen2.5:0.5b", "stories15m, and models of a hub as owner/name"),
        ("smolm2", "owner/name; did you mean smollm2?"),
    ],
)
def test_names_that_no_model_has(name: str, ending: str) -> None:
    with pytest.raises(InputError) as raised:
        locate(name)
    assert str(raised.value).startswith(f"{name} does not exist, and no model is called {name!r}: known are ")
    assert str(raised.value).endswith(ending)


def test_a_folder_with_a_program(tmp_path: Path, programs: Path) -> None:
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(InputError, match=r"the folder .* is empty"):
            load(path)
    shutil.copy(programs / "mlp.pte", tmp_path / "any.pte")
    assert load(tmp_path).methods == ("forward",)
    write(tmp_path, pteron_json='{"model": "other.pte"}')
    with pytest.raises(InputError, match=r"its pteron\.json names other\.pte, which is missing"):
        load(tmp_path)


def test_what_was_located_long_before_is_read_again(tmp_path: Path) -> None:
    """A server loads a model again whose folder has another program meanwhile."""
    folder = write(tmp_path, old_pte="", new_pte="", pteron_json='{"model": "old.pte"}')
    located = recognise(folder)
    assert locate_program(located).program.name == "old.pte"
    write(tmp_path, pteron_json='{"model": "new.pte"}')
    assert locate_program(located).program.name == "new.pte"


# Files of a hub's model --------------------------------------------------------------------------


CHECKPOINT = ["README.md", "LICENSE", "config.json", "generation_config.json", "tokenizer.json"]
QUANTISED = ["it-Q4_K_S.gguf", "it-Q4_K_M.gguf", "it-q8_0.gguf", "mmproj-it-Q4_K_M.gguf", "README.md"]
QUANTISED += ["it.imatrix.Q4_K_M.gguf", "MMPROJ-it-Q8_0.gguf", "old.GGUF"]


def test_a_checkpoints_files() -> None:
    listed = [
        *(*CHECKPOINT, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        *("model.safetensors.index.json", "consolidated.safetensors", "pytorch_model.bin"),
        *("original/params.json", "onnx/model.onnx", "../outside.json", "/etc/passwd.json"),
    ]
    selection = select_files(listed, None, "me/it")
    assert selection.main == ""
    assert selection.files == (
        *("LICENSE", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"),
        *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "config.json"),
    )
    only = ["config.json", "consolidated.safetensors"]  # no second copy, but the weights
    assert select_files(only, None, "me/it").files == ("consolidated.safetensors", "config.json")


def test_a_programs_files() -> None:
    listed = ["pteron.json", "tokenizer.json", "model.pte", "weights.ptd", "other.safetensors"]
    assert select_files(listed, None, "me/it").files[-1] == "pteron.json"
    assert set(select_files(listed, None, "me/it").files) == set(listed[:4])
    only = ["tokenizer.model", "it.pte"]
    assert select_files(only, None, "me/it").main == "it.pte"
    assert select_files([*only, "b.pte"], "b.pte", "me/it:b.pte").files == ("tokenizer.model", "b.pte")
    beside = ("NOTICE", "LICENCE.md", "merges.txt", "chat.jinja", "bpe.tiktoken")
    assert select_files([*beside, "notes.md", "it.pte"], None, "me/it").files == (*beside, "it.pte")


@pytest.mark.parametrize(
    ("tag", "file"),
    [
        (None, "it-Q4_K_M.gguf"),
        ("Q4_K_M", "it-Q4_K_M.gguf"),
        ("q4_k_s", "it-Q4_K_S.gguf"),
        ("Q8_0", "it-q8_0.gguf"),
        ("it-q8_0.gguf", "it-q8_0.gguf"),
        ("old.GGUF", "old.GGUF"),
    ],
)
def test_a_quantisation(tag: str | None, file: str) -> None:
    selection = select_files(QUANTISED, tag, "me/it")
    assert (selection.files, selection.main) == ((file,), file)


@pytest.mark.parametrize(
    ("listed", "tag", "sentence"),
    [
        (QUANTISED, "Q4_K", "no GGUF file of me/it matches 'Q4_K'; it has it-Q4_K_M.gguf, it-Q4_K_S.gguf"),
        (["a-Q2_K.gguf", "b-Q2_K.gguf"], "Q2_K", "has 2 GGUF files; name one, as in me/it:a-Q2_K.gguf"),
        (
            ["a-Q8_0-00001-of-00002.gguf", "b-Q8_0.gguf"],
            "Q8_0",
            "has 2 GGUF files; name one, as in me/it:a-Q8_0-00001-of-00002.gguf",
        ),
        (["a.gguf", "b.gguf"], None, "has 2 GGUF files; name one, as in me/it:a.gguf: a.gguf, b.gguf"),
        (CHECKPOINT, "Q4_K_M", "no GGUF file of me/it matches 'Q4_K_M'; it has no GGUF files"),
        (CHECKPOINT, "config.json", "config.json is neither a GGUF file nor a program"),
        ([*CHECKPOINT, "pytorch_model.bin"], None, "PyTorch pickles only (pytorch_model.bin)"),
        (["a.pte", "b.pte"], None, "means 2 programs; name one, as in me/it:a.pte; it has a.pte, b.pte"),
        ([], None, "it has no files"),
        (
            ["Q8_0/a-Q8_0-00001-of-00002.gguf", "Q8_0/a-Q8_0-00002-of-00002.gguf"],
            "Q8_0",
            "is one of 2 parts; join them with llama.cpp's `llama-gguf-split --merge ",
        ),
    ],
)
def test_no_single_file(listed: list[str], tag: str | None, sentence: str) -> None:
    with pytest.raises(PteronError) as raised:
        select_files(listed, tag, f"me/it:{tag}" if tag else "me/it")
    assert sentence in str(raised.value)


# Programs built from checkpoints -----------------------------------------------------------------


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The calls of an exporter that writes an empty program; the cache is a new folder."""
    calls: list[dict[str, object]] = []

    def export_llm(source: Path, folder: Path, **options: object) -> Path:
        calls.append({"source": source, **options})
        return write(folder, pteron_json="{}", model_pte="program")

    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local_models, "find_spec", lambda _: None)  # not the hub's cache of this machine
    return calls


def test_a_program_is_built_once(exports: list[dict[str, object]], tmp_path: Path) -> None:
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    located = locate_program(gguf)
    assert located == locate_program(gguf)
    assert (located.name, located.kind) == ("my", "program")
    assert located.path.parent == tmp_path / "cache" / "programs"
    made = [tuple(each[key] for key in ("source", "quantize", "quantize_floats", "name")) for each in exports]
    assert made == [(gguf, "auto", "8w", "my")]
    assert json.loads((located.path / program_cache.SOURCE).read_text())["source"] == str(gguf)
    gguf.write_text("GGUF, changed", "utf-8")
    whole = build(Located("gguf", gguf, "my"), quantize=None).path
    assert located.path.exists()
    new = locate_program(gguf).path
    assert {*located.path.parent.iterdir()} == {new, whole}  # without the program of the file as it was
    assert len(exports) == 3


def test_two_names_of_a_file_are_one_program(exports: list[dict[str, object]], tmp_path: Path) -> None:
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    assert build(Located("gguf", gguf, "me/it")).path == build(Located("gguf", gguf, "me/it:Q8_0")).path
    assert len(exports) == 1


def test_options_and_files_are_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    folder = write(tmp_path / "llama", config_json="{}", model_safetensors="x", readme_md="")
    located = recognise(folder)
    before = built_folder(located)
    assert built_folder(located, quantize=None) != before
    write(folder, readme_md="other")
    assert built_folder(located) == before
    write(folder, tokenizer_json="{}")
    assert built_folder(located) != before


def test_an_interrupted_build_leaves_nothing(
    exports: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export_llm(source: Path, folder: Path, **_: object) -> None:
        write(folder, model_pte="half")
        raise KeyboardInterrupt

    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    with pytest.raises(KeyboardInterrupt):
        build(recognise(gguf))
    assert list((tmp_path / "cache" / "programs").iterdir()) == []


def test_a_program_that_another_process_built_meanwhile(
    exports: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in use there, so it stays as it is."""
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    theirs = built_folder(recognise(gguf))

    def export_llm(source: Path, folder: Path, **_: object) -> None:
        write(folder, pteron_json="ours")
        write(theirs, pteron_json="theirs")

    monkeypatch.setattr("pteron.llm.export.export_llm", export_llm)
    assert build(recognise(gguf)).path == theirs
    assert (theirs / "pteron.json").read_text() == "theirs"
    assert list(theirs.parent.iterdir()) == [theirs]


def test_list_and_remove(
    exports: list[dict[str, object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    assert main(["pull", str(gguf), "--no-build"]) == 0
    assert capsys.readouterr().out == f"{gguf}\n"
    assert exports == []
    assert main(["pull", str(gguf)]) == 0
    built = Path(capsys.readouterr().out.strip())
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    size = sum(file.stat().st_size for file in built.iterdir())
    assert lines[0] == ["model", "kind", "size", "built"]
    assert lines[1] == ["smollm2", "built-in", "-", "-"]
    assert lines[2][:3] == ["stories15m", "built-in", "11.5"]
    assert lines[3] == [str(gguf), "GGUF", "4", "B", str(size), "B"]
    assert main(["rm", str(gguf)]) == 0
    assert capsys.readouterr().out == f"removed {gguf}: {size} B\n"
    assert gguf.exists()
    assert not built.exists()


def test_what_cannot_be_removed(
    exports: list[dict[str, object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, sentence in (
        ("stories15m", "stories15m is a part of the package"),
        ("smollm2", "nothing in the cache belongs to smollm2"),
        ("me/it", "nothing in the cache belongs to me/it; `pteron list` prints all models"),
    ):
        assert main(["rm", name]) == 1
        assert sentence in capsys.readouterr().err
    gguf = write(tmp_path / "files", my_gguf="GGUF") / "my.gguf"
    locate_program(gguf)
    gguf.unlink()
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["kind"] == "source is gone"
    gguf.write_text("<html>", "utf-8")
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["kind"] == "unusable"
    assert main(["rm", str(gguf), "smollm2"]) == 1  # and removes nothing
    assert main(["rm", str(gguf)]) == 0
