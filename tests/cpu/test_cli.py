"""The command line without a GPU: every error is one sentence and exit code 1."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pteron
from pteron.cli import COMMANDS, main
from pteron.cli.arguments import live_size
from pteron.cli.completion import adapter_words, words_for
from pteron.llm.names.local_models import LocalModel
from pteron.names.cache import HubModel
from pteron.names.kinds import Located
from pteron.tools.bench import Pace
from pteron.tools.check import CaseReport
from pteron.tools.compare import Prompt
from pteron.tools.estimate import find_gpus
from pteron.tools.inputs import LiveSize
from pteron.tools.workload import Decode, Prefill, Selection


def fails(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence that a command fails with."""
    assert main(argv) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pteron: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"pteron {pteron.__version__}\n"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: pteron {command}")


def test_inspect_prints_text_or_json(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(programs / "mlp.pte")]) == 0
    assert "forward(f32[3, 7]) -> (f32[3, 5])" in capsys.readouterr().out
    assert main(["inspect", str(programs / "mlp.pte"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["methods"][0]["inputs"][0]["shape_max"] == [3, 7]
    assert report["methods"][0]["delegates"][0]["graph"] == []


def test_inspect_prints_the_text_of_a_kernel(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["inspect", str(programs / "dtypes.pte"), "--kernels"]
    assert main([*argv, "unary"]) == 0
    first, buffers, numbers, *text = capsys.readouterr().out.splitlines()
    assert first == "// forward, delegate 0, at the maximum shapes: 1x1x1 workgroups of 64x1x1, of node 7"
    assert buffers == "//   x: slot of 60 bytes, out: slot of 60 bytes"
    assert numbers == "//   count = 15, integer = 0, first = 0.0, second = 0.0"
    assert "fn apply(x: T) -> R { return R(!(T(x > params.first) == T(0))); }" in text
    assert "fn flat_index(id: vec3<u32>, groups: vec3<u32>) -> u32 {" in text
    assert not [line for line in text if "import" in line and not line.startswith("//")]
    assert "launches no kernel 'matvec'; there are binary_alike, " in fails([*argv, "matvec"], capsys)
    with pytest.raises(SystemExit, match="2"):
        main([*argv, "unary", "--json"])
    assert "--kernels prints WGSL" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_missing_file(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.pte: there is no such file" in fails([command, "nowhere.pte"], capsys)


def test_no_command_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "inspect      show what a program contains" in printed.err


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("inspect", ["--plan"]),
        ("inspect", ["--dim", "1"]),
        ("inspect", ["--histograms", "--json"]),
        ("inspect", ["--integer", "3"]),
        ("estimate", ["--device", "0", "--gpu", "4060"]),
    ],
)
def test_options_without_effect(
    command: str, options: list[str], programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, str(programs / "mlp.pte"), *options])
    assert ended.value.code == 2
    assert f"error: {options[0]} needs " in capsys.readouterr().err


def test_what_a_command_misses(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert "give a text after the model, with --prompt" in fails(["generate", "stories15m"], capsys)
    with pytest.raises(SystemExit, match="2"):
        main(["completion"])
    assert "name a shell: bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--html"]])
def test_a_models_folder(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the folder . is empty" in fails(["inspect", ".", *options], capsys)
    folder = Path(pteron.__file__).parent / "models" / "stories15m"
    assert main(["inspect", str(folder), "--method", "get_n_layers", *options]) == 0
    assert capsys.readouterr().out.startswith("model.html" if options else "model.pte  11.1 MB")


@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_damaged_file(
    command: str, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "half.pte"
    content = (programs / "mlp.pte").read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "half.pte: " in fails([command, str(path)], capsys)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["generate", "m", "--max-tokenz=5"], "arguments: --max-tokenz=5; did you mean --max-tokens?"),
        (["run", "m.pte", "--repaet", "5"], "arguments: --repaet 5; did you mean --repeat?"),
        (["generate", "m", "a", "b"], "unrecognized arguments: b\n"),
        (["--vesion", "info"], "did you mean --version?"),
        (["serve", "m", "--max-model-len", "100"], "did you mean --context?"),
        (["serve", "m", "--ssl-certfile", "c"], "did you mean --certificate?"),
        (["serve", "m", "--ssl-keyfile", "k"], "did you mean --private-key?"),
        (["serve", "m", "--allowed-origins", "o"], "did you mean --cors?"),
        (["generate", "m", "--parallel", "4"], "unrecognized arguments: --parallel 4\n"),  # it has no such
        (["serve", "m", "--foo"], "unrecognized arguments: --foo\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_unknown_options(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        # A shell's variable that is not set.
        (["inspect", ""], "name one model: a program, a folder"),
        (["serve", "stories15m", ""], "a path, or a model's name, must not be empty"),
        (["run", ""], "name one model: a program, a folder"),
        (["doctor", ""], "name one model: a program, a folder"),
        (["export", "llm", "", "-o", "out"], "a path, or a model's name, must not be empty"),
        (["bench", "stories15m", "--perplexity", "nowhere.txt"], "nowhere.txt does not exist"),
        (["bench", "mlp.pte", "--against", "."], ".: this is a directory, not a file"),
        (["inspect", "mlp.pte", "--diff", "nowhere.json"], "nowhere.json: there is no such file"),
        (["export", "web", "mlp.pte", "-o", "out", "--labels", "latin.txt"], "latin.txt is not UTF-8 text"),
        (["export", "web", "mlp.pte", "-o", "latin.txt/out"], "latin.txt/out cannot be written to: "),
        (
            ["estimate", "mlp.pte", "--method", "no"],
            "mlp.pte has no method 'no' that runs on a GPU; it has f",
        ),
        (["estimate", "stories15m", "--decode", "256"], "decode at context 256: the KV cache holds 256"),
        (["generate", "mlp.pte", "Once"], ". holds no tokenizer, as language models have; looked for "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_arguments_that_name_nothing_usable(
    argv: list[str],
    sentence: str,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(programs / "mlp.pte", "mlp.pte")
    Path("latin.txt").write_bytes("Käse\n".encode("latin-1"))
    assert main(argv) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"pteron: {sentence}")


GIVEN = "--data w.ptd --device llvmpipe --digits 2 --products f16"
REACHED: dict[str, Any] = {"data": ["w.ptd"], "device": "llvmpipe", "digits": 2, "products": "f16"}
STEPS = "--prompt-tokens 7 --prompt-tokens 9 --decode --context 0 --context 5"


@pytest.mark.parametrize(
    ("command", "function", "reached"),
    [
        (
            f"bench m.pte {GIVEN} {STEPS} --cache int8 --runs 3 --seconds 0.5 --warmup 2 --tokens 4",
            "pteron.tools.bench.bench",
            REACHED
            | {"devices": ["llvmpipe"], "device": None, "cache": "int8", "pace": Pace(3, 0.5, 2, 4)}
            | {"given": ["m.pte", [Prefill(7), Prefill(9), Decode(0), Decode(5)]]},
        ),
        ("bench m.pte", "pteron.tools.bench.bench", {"given": ["m.pte", [Selection(None, [], [])]]}),
        ("bench .", "pteron.tools.bench.bench", {"given": [".", []]}),  # a prefill and a decode step
        (
            "bench m.pte --decode",
            "pteron.tools.bench.bench",
            {"given": ["m.pte", [Decode(100)]], "pace": Pace(), "devices": [None], "products": None},
        ),
        (
            f"compare m.pte {GIVEN} --reference rewrites --method f --tokens 0,5 --steps 2 "
            "--each-node --save out",
            "pteron.tools.compare.compare",
            REACHED
            | {"reference": "rewrites", "each_node": True, "save_to": "out"}
            | {"given": ["m.pte", Prompt([0, 5], 2, "f")]},
        ),
        (
            "compare m.pte --method f --dim 3 --seed 4",
            "pteron.tools.compare.compare",
            {"given": ["m.pte", Selection("f", [], [LiveSize(3)], 4)]},
        ),
        (
            "doctor m.pte --write --no-timing --device llvmpipe",
            "pteron.tools.doctor.doctor",
            {"given": ["m.pte"], "write": True, "timing": False, "device": "llvmpipe"},
        ),
        ("doctor", "pteron.tools.doctor.doctor", {"given": [None], "write": False, "timing": True}),
        (
            "estimate m.pte --gpu 4090 --gpu h200 --method f --prefill 7 --decode 0 --decode 5 --dim 3",
            "pteron.tools.estimate.estimate",
            {"given": [Path("m.pte"), [*find_gpus("4090"), *find_gpus("h200")]], "method": "f"}
            | {"prefill": [7], "decode": [0, 5], "sizes": [LiveSize(3)]},
        ),
        (
            "export llm . -o out --quantize 8w --group-size 64 --fp16 --embedding-bits 8 --rounding extremes "
            "--max-seq-len 7 --max-context-len 9",
            "pteron.llm.export.export_llm",
            {"quantize": "8w", "group_size": 64, "embedding_bits": 8, "rounding": "extremes"}
            | {"max_seq_len": 7, "max_context_len": 9, "force_fp16": True},
        ),
        (
            "export llm . -o out --quantize none",
            "pteron.llm.export.export_llm",
            {"quantize": None, "embedding_bits": None, "group_size": 32, "force_fp16": False},
        ),
        (
            "export llm . -o out",
            "pteron.llm.export.export_llm",
            {"quantize": "auto", "embedding_bits": "auto", "max_seq_len": None, "max_context_len": None},
        ),
        (
            "export web m.pte -o out --variant software --method f --force --shape x=1x1-8 --context 9 "
            "--length 4 --cache f16 --name N --labels labels.txt --page vision",
            "pteron.web.export_web",
            {"given": ["m.pte", "out"], "variants": ["software"], "methods": ["f"], "shapes": ["x=1x1-8"]}
            | {"context": 9, "lengths": [1, 4], "cache": "f16", "name": "N", "labels": ["cat", "dog"]}
            | {"page": "vision", "force": True},
        ),
        (
            f"profile m.pte {GIVEN} --runs 3 --warmup 0 --timing wall --remeasure --decode --context 0",
            "pteron.tools.profile.profile",
            REACHED
            | {"given": ["m.pte", Decode(0)], "runs": 3, "warmup": 0, "timing": "wall", "remeasure": True},
        ),
        ("profile .", "pteron.tools.profile.profile", {"given": [".", Decode(100)]}),
        (
            "profile . --method f --seed 3 --dim 0.1=5",
            "pteron.tools.profile.profile",
            {"given": [".", Selection("f", [], [LiveSize(5, 0, 1)], 3)]},
        ),
        (f"run m.pte {GIVEN}", "pteron.runtime.load", {"given": [Path("m.pte"), ["w.ptd"], "llvmpipe"]}),
        (
            f"generate . Once {GIVEN} --context 99 --cache f16 --no-rings --speculate lookup --lora sql "
            "--tokenizer t.json",
            "pteron.llm.LLM",
            REACHED
            | {"given": [Path("."), "t.json"], "context": 99, "cache": "f16", "rings": False}
            | {"speculate": "lookup", "adapters": {"lora": "sql"}},
        ),
        ("chat .", "pteron.llm.LLM", {"context": None, "cache": None, "rings": True, "adapters": None}),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) and " " in value else "",
)
def test_options_reach_the_library(
    command: str,
    function: str,
    reached: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: dict[str, Any] = {}

    def called(*given: Any, **options: Any) -> None:
        found.update(options, given=[Path(each) if isinstance(each, Located) else each for each in given])
        raise pteron.PteronError("far enough")

    monkeypatch.chdir(tmp_path)
    Path("labels.txt").write_text("cat\ndog\n")
    is_checkpoint = command.startswith("export llm")
    Path("model.gguf" if is_checkpoint else "model.pte").write_bytes(
        b"GGUF" if is_checkpoint else b"....ET12"
    )
    monkeypatch.setattr(function, called)
    assert main(command.split()) == 1
    assert "far enough" in capsys.readouterr().err
    assert {name: found.get(name) for name in reached} == reached


def test_options_of_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Test cases of a bundled program run unless inputs are given, and decide the exit code."""
    asked = list[tuple[Selection, int]]()

    def loaded(bundle: object) -> None:
        program = SimpleNamespace(bundle=bundle)
        monkeypatch.setattr("pteron.runtime.load", lambda *_, **__: nullcontext(program))

    def run(program: Any, selection: Selection, repeat: int, progress: object) -> None:
        asked.append((selection, repeat))
        raise pteron.PteronError("far enough")

    monkeypatch.setattr("pteron.tools.run.run", run)
    monkeypatch.setattr("pteron.tools.run.place_of", lambda _: "a GPU")
    options = ["--method", "f", "--dim", "3", "--seed", "4", "--repeat", "5"]
    loaded(None)
    assert main(["run", "m.pte", *options]) == 1
    loaded("cases")
    for given in (["--input", "3"], ["--no-check"]):
        assert main(["run", "m.bpte", *given]) == 1
    assert asked[0] == (Selection("f", [], [LiveSize(3)], 4), 5)
    assert [len(selection.inputs) for selection, _ in asked] == [0, 1, 0]
    for problem, code in (("", 0), ("it differs", 1)):
        cases = [CaseReport("f", 0, 0.0, problem or None)]
        monkeypatch.setattr("pteron.tools.check.check_bundle", lambda *_, cases=cases: cases)
        assert main(["run", "m.bpte", "--json"]) == code
    assert len(asked) == 3


def test_ls_is_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    assert main(["ls"]) == 0
    assert "stories15m" in capsys.readouterr().out


def test_live_sizes() -> None:
    assert live_size("7") == LiveSize(7)
    assert live_size("0.1=7") == LiveSize(7, 0, 1)


@pytest.mark.parametrize("text", ["", "x", "-1", "1=7", "0.1", "0.1=", "0.1=x"])
def test_a_live_size_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live_size(text)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "model.pte", f"--dim={text}"])
    assert "as in 0.1=7" in capsys.readouterr().err


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pteron.tools.inspect.inspect", interrupt)
    assert main(["inspect", "model.pte"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_stops_reading_is_no_error(models: Path) -> None:
    argv = [sys.executable, "-m", "pteron", "inspect", str(models / "tiny_llama_fp32.pte"), "--graph"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (pteron.DeviceError("the kernel\n  was refused"), "the kernel was refused"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(13, "Permission denied", "some/file"), "some/file: Permission denied"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "invalid start byte"),
        (MemoryError(), "there is not enough memory"),
        (RecursionError("too deep"), "nested too deeply: too deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_are_one_sentence(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pteron.tools.inspect.inspect", fail)
    assert said in fails(["inspect", "file.pte"], capsys)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.json"])
def test_inputs_that_are_damaged(
    name: str, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", str(programs / "mlp.pte"), "--input", str(tmp_path / name)]
    contents = [b"", b"[" * 100_000, b"PK\x03\x04" + bytes(100), b"\x93NUMPY\x01\x00\x08\x00" + bytes(100)]
    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }\n"
    contents.append(b"\x93NUMPY\x01\x00" + len(huge).to_bytes(2, "little") + huge)
    for content in contents:
        (tmp_path / name).write_bytes(content)
        assert main(command) == 1
        assert name in capsys.readouterr().err


# Completion in shells ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ([], [*COMMANDS]),
        (["ge"], ["generate"]),
        (["run", "--re"], ["--repeat"]),
        (["run", "model"], []),
        (["run", "--input", ""], []),
        (["export", ""], ["llm", "web"]),
        (["export", "llm", "--quantize", "8d"], ["8da4w"]),
        (["generate", "--model", "s"], ["smollm2", "stories15m"]),
        (["chat", "smo"], ["smollm2"]),
        (["serve", "stories15m", "smo"], ["smollm2"]),
        (["chat", "smollm2", "--speculate", "lo"], ["lookup"]),
        (["chat", ""], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["export", "llm", "--quantize", "=", "8d"], ["8da4w"]),
        (["export", "llm", "--quantize", "="], words_for(["export", "llm", "--quantize", ""])),
        (["export", "llm", "--quantize=8d"], ["--quantize=8da4w"]),
        (["run", "a=b"], []),
        (["--he"], ["--help"]),
    ],
    ids=" ".join,
)
def test_words(typed: list[str], words: list[str]) -> None:
    assert words_for(typed) == words


def test_shells_ask_for_words(capsys: pytest.CaptureFixture[str]) -> None:
    """What was typed may begin with a sign. Without words, shells offer files."""
    assert main(["completion", "--words", "run", "--re"]) == 0
    assert capsys.readouterr().out == "--repeat\n"
    assert main(["completion", "--words", "run", "model"]) == 1


def test_adapters_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a word that no other adapter has, or by number."""
    assert words_for(["run", "x.pte", "--device", ""]) == words_for(["serve", "x", "--device", ""]) != []
    described = ["NVIDIA H200 DiscreteGPU Vulkan", "llvmpipe (LLVM 15.0.6, 128 bits) CPU Vulkan"]
    assert adapter_words(described) == ["NVIDIA", "llvmpipe"]
    assert adapter_words([described[0]] * 2 + described[1:]) == ["0", "1", "llvmpipe"]
    assert adapter_words(["NVIDIA H200 Vulkan", "NVIDIA H100 Vulkan"]) == ["H200", "H100"]


def test_models_of_a_hub_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    from pteron.llm.names import local_models

    hub = HubModel("owner/name", tag="Q4_K_M")
    models = [LocalModel(str(hub), "GGUF", Path("x"), (), hub), LocalModel("/a/file", "GGUF", Path("/a"), ())]
    monkeypatch.setattr(local_models, "local_models", lambda: models)
    assert words_for(["chat", "own"]) == ["owner/name:Q4_K_M"]
    assert words_for(["rm", "/a"]) == []


def test_every_option_of_a_command_is_offered() -> None:
    assert {"--prompt", "--json", "--overflow", "--help"} <= set(words_for(["generate", "--"]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, "utf-8")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(script)], check=True)


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """An environment where `pteron` is this Python's, and shells do not read the user's settings."""
    command = tmp_path / "bin" / "pteron"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pteron "$@"\n', "utf-8")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb"}


def needed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def test_bash_completes(shell_environment: dict[str, str]) -> None:
    line = 'eval "$(pteron completion bash)"; COMP_WORDS=(pteron export llm --qu); COMP_CWORD=3; _pteron; '
    done = subprocess.run(
        [needed("bash"), "-c", f'{line} echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        encoding="utf-8",
        env=shell_environment,
        check=True,
    )
    assert done.stdout.split() == ["--quantize"]
