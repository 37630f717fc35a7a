"""pteron run, info and demo, from the command line to the adapter and back."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden import assert_outputs, read_cases
from hub_server import serve_only_hub

import pteron
from pteron.cli import main
from pteron.gpu.adapters import adapters

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROGRAMS = sorted((FIXTURES / "programs").glob("*.pte"))


def weights_of(path: Path) -> list[str]:
    """The --data arguments of a program."""
    return [text for file in sorted(path.parent.glob(f"{path.stem}.*.ptd")) for text in ("--data", str(file))]


@pytest.mark.parametrize(
    "name", ["mlp_dynamic", "two_delegates", "external_weights", "select_position", "host_only", "dtypes"]
)
def test_outputs_are_written(name: str, programs: Path, tmp_path: Path) -> None:
    path = programs / f"{name}.pte"
    case = read_cases(programs / f"{name}.npz")[0]
    argv = ["run", str(path), *weights_of(path), "--output", str(tmp_path / "out")]
    for index, array in enumerate(case.inputs):
        np.save(tmp_path / f"{index}.npy", array)
        argv += ["--input", str(tmp_path / f"{index}.npy")]
    assert main(argv) == 0
    found = [np.load(tmp_path / "out" / f"output_{index}.npy") for index in range(len(case.outputs))]
    assert_outputs(found, case.outputs)


def test_names_instead_of_files(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("huggingface_hub")
    shards = [path.name for path in sorted(programs.glob("external_weights.*.ptd"))]
    files = {name: (programs / name).read_bytes() for name in ("external_weights.pte", *shards)}
    data = [f"--data=me/it:{shard}" for shard in shards]
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))  # of the isolated process
    with serve_only_hub({"me/it": files}, tmp_path, monkeypatch):
        assert main(["run", "me/it:external_weights.pte", *data, "--isolated"]) == 0
    assert "external_weights.pte, forward(" in capfd.readouterr().out
    assert main(["run", "stories15m", "--method", "get_n_layers"]) == 0
    assert "output 0" in capfd.readouterr().out


@pytest.mark.long(every=3)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_runs_with_random_inputs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = ["--method", "encode"] if path.stem == "multi_method" else []
    code = main(["run", str(path), *weights_of(path), *method, "--json"])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    report = json.loads(printed.out)
    assert report["counters"]["calls"] == 1


def test_what_ran_where(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["run", str(programs / "two_delegates.pte"), "--dim", "4", "--repeat", "2"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "output 0  f32[4, 3]  min " in text
    assert "2 delegate calls: 2 dispatches" in text
    assert "1x aten::cumsum.out" in text
    assert "median of 2 calls" in text
    assert main(argv[:-2]) == 0
    assert "median" not in capsys.readouterr().out


def test_the_precision_is_named(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["run", str(programs / "mlp.pte"), "--json"]
    assert main([*argv, "--products", "f16", "--digits", "2"]) == 0
    place, target = json.loads(capsys.readouterr().out)["device"], pteron.Device.open().target
    assert f", 2 digits{' (no effect on CPUs)' if target.is_cpu else ''}, f16 products" in place
    assert place.endswith(" (no effect: no matrix cores)") is not target.has_matrices
    with pytest.raises(SystemExit, match="2"):
        main([*argv, "--digits", "4"])
    assert "--digits: invalid choice: 4" in capsys.readouterr().err


def test_few_values_are_shown(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(programs / "multi_method.pte"), "--method", "get_end_ids"]) == 0
    assert "output 1  int  5" in capsys.readouterr().out


def test_an_integer_input_is_taken_from_the_command_line(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = read_cases(programs / "symint_input.npz")[0]
    np.save(tmp_path / "x.npy", case.inputs[0])
    argv = ["run", str(programs / "symint_input.pte"), "--input", str(tmp_path / "x.npy")]
    assert main([*argv, "--input", str(case.inputs[1]), "--output", str(tmp_path)]) == 0
    assert_outputs([np.load(tmp_path / "output_0.npy")], case.outputs)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--method", "train"], "has no method 'train'; it has forward"),
        (["--dim", "18"], "dim 18: dim 0 of input 0 is at most 17 (f32[≤17, 7])"),
        (["--dim", "0.1=3"], "no such dynamic dim; the method has 0.0 (input.dim)"),
        (
            ["--input", "wide.npy"],
            "input 0 (wide.npy): expected f32[≤17, 7], got f64; save it as ",
        ),
        (["--input", "long.npy"], "dim 0 is 18, expected at most 17: the input is f32[≤17, 7], got [18, 7]"),
        (["--input", "flat.npy"], "expected rank 2, f32[≤17, 7], got [7]"),
        (["--input", "gone.npy"], "gone.npy: there is no such file"),
        (["--input", "[[1]]", "--input", "2"], "takes 1 inputs (input_0), got 2"),
        (["--device", "abacus"], "no adapter matches 'abacus'"),
        (["--device", "99"], "there is no adapter 99; this machine has 0: "),
        (["--device", "4090"], "no adapter matches '4090'"),
        (["--check"], "has no test cases"),
        (["--check", "none.pt2"], "PyTorch cannot load it as an exported program"),
    ],
)
def test_errors_are_sentences(
    arguments: list[str],
    sentence: str,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("wide.npy", np.zeros((2, 7)))
    np.save("long.npy", np.zeros((18, 7), np.float32))
    np.save("flat.npy", np.zeros(7, np.float32))
    assert main(["run", str(programs / "mlp_dynamic.pte"), *arguments]) == 1
    printed = capsys.readouterr()
    (said,) = [line for line in printed.err.splitlines() if "no GPU was found" not in line]
    assert said.startswith("pteron: ")
    assert sentence in said
    assert printed.out == ""


@pytest.mark.long
def test_a_process_of_its_own(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes outputs to a relative path; one that takes too long, fails or crashes is an error here."""
    program = str(programs / "mlp_dynamic.pte")
    monkeypatch.chdir(tmp_path)
    assert main(["run", program, "--isolated", "60", "--output", "out"]) == 0
    assert np.load("out/output_0.npy").shape[0] == 17
    Path("damaged.pte").write_bytes(b"x")
    assert main(["run", "damaged.pte", "--isolated", "60"]) == 1
    assert capsys.readouterr().err == ""  # the process has said it
    assert main(["run", program, "--isolated", "0.01"]) == 1
    assert capsys.readouterr().err.strip() == f"pteron: {program}: took longer than 0.01 s and was ended"
    if os.name == "posix":
        crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
        monkeypatch.setattr("pteron.cli.run.python_module", lambda *_: crash)
        assert main(["run", program, "--isolated"]) == 1
        assert capsys.readouterr().err.strip() == f"pteron: {program}: ended its process by SIGSEGV"


def test_an_output_folder_that_cannot_be_made(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["run", str(programs / "mlp.pte"), "--output", str(tmp_path / "file" / "out")]) == 1
    assert "the outputs cannot be written" in capsys.readouterr().err


def test_an_unsupported_program(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "strange.pte"
    content = (programs / "mlp.pte").read_bytes()
    path.write_bytes(content.replace(b"aten.gelu.default", b"aten.gild.default"))
    assert main(["run", str(path)]) == 1
    assert "delegate operators that Pteron does not have: aten.gild.default" in capsys.readouterr().err


def test_bundled_programs_check_themselves(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(programs / "bundled.bpte")]) == 0
    assert "2 of 2 test cases passed" in capsys.readouterr().out
    assert main(["run", str(programs / "bundled.bpte"), "--no-check"]) == 0
    assert "first call" in capsys.readouterr().out


def test_a_bundled_program_that_differs(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (programs / "bundled.bpte").read_bytes()
    expected = read_cases(programs / "bundled.npz")[0].outputs[0]
    assert expected.tobytes() in content
    path = tmp_path / "wrong.bpte"
    path.write_bytes(content.replace(expected.tobytes(), (expected + 1).tobytes()))
    assert main(["run", str(path)]) == 1
    text = capsys.readouterr().out
    assert "forward 0  output 0: 15 of 15 values exceed the tolerance" in text
    assert "1 of 2 test cases passed" in text


class Sum(torch.nn.Module):  # type: ignore[misc]  # torch is untyped to mypy
    """What the fixture input_order was made from."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: Any, unused: Any, y: Any) -> Any:
        return x + self.sign * y * x


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_exported_program_is_a_check(
    sign: float, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = (torch.zeros(3, 5), torch.zeros(2), torch.zeros(3, 5))
    path = tmp_path / "sum.pt2"
    torch.export.save(torch.export.export(Sum(sign), inputs), path)
    assert main(["run", str(programs / "input_order.pte"), "--check", str(path), "--json"]) == (sign < 0)
    (case,) = json.loads(capsys.readouterr().out)
    assert (case["problem"] is None) == (sign == 1)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--check", str(programs / "bundled.bpte")])
    assert "expected a file of torch.export.save (.pt2)" in capsys.readouterr().err


def test_info_lists_adapters_and_says_why_one_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PTERON_ADAPTER", raising=False)
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "storage binding" in text
    assert "(used: the " in text
    monkeypatch.setenv("PTERON_ADAPTER", "0")
    assert main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["chosen"], report["reason"]) == (0, "requested by PTERON_ADAPTER=0")


def test_info_says_why_a_library_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def library() -> str:
        assert main(["info", "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["library"])

    monkeypatch.delenv("PTERON_WEBGPU", raising=False)
    chosen = library()
    monkeypatch.setenv("PTERON_WEBGPU", "auto")
    assert library() == chosen
    assert "requested" not in chosen
    monkeypatch.setenv("PTERON_WEBGPU", "wgpu")
    assert library().endswith(", requested by PTERON_WEBGPU=wgpu: without matrix cores")
    monkeypatch.setenv("PTERON_WEBGPU", "metal")
    assert library() == "PTERON_WEBGPU='metal': the WebGPU library can be auto, wgpu or dawn"


def test_info_without_an_adapter(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(import_module("pteron.gpu.choose"), "adapters", lambda *_: ())
    for system, advice in {
        "linux": "mesa-vulkan-drivers",
        "darwin": "Metal",
        "win32": "Direct3D 12",
    }.items():
        monkeypatch.setattr(sys, "platform", system)
        assert main(["info"]) == 1
        assert advice in capsys.readouterr().err


def test_a_machine_without_a_gpu(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says so, except beside output for machines."""
    is_software = adapters()[0].is_cpu
    for arguments, is_shown in (([], True), (["--json"], False)):
        assert main(["run", str(programs / "mlp.pte"), *arguments]) == 0
        printed = capsys.readouterr()
        assert printed.err.count("no GPU was found") == (is_software and is_shown)
        assert "no GPU was found" not in printed.out
    assert main(["info"]) == 0
    assert capsys.readouterr().out.count("No GPU was found") == is_software


def test_the_demo_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--max-new-tokens", "12"]) == 0
    text = capsys.readouterr().out
    assert "Once upon a time, there was" in text
    assert "12 tokens at " in text
    assert "nothing on the host" in text
