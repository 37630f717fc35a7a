"""pteron compare: every kind of reference, what is checked and what is not, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broken_kernel import broken

import pteron
from pteron import Device, InputError
from pteron.cli import main
from pteron.gpu.recording import Affines
from pteron.ops.rewrite import REWRITES, Flow, Replacement
from pteron.passes.rewrite import REWRITES_VARIABLE
from pteron.tools.compare import Prompt, Selection, Tolerances, Verdict, calls
from pteron.tools.inputs import LiveSize

pytest.importorskip("torch")

STORIES = Path(pteron.__file__).parent / "models" / "stories15m"
WRONG_RELU = ("unary", "= apply(T(x[i]))", "= apply(T(x[i]) + T(1))")
SHAPES: dict[str, list[LiveSize]] = {"mlp_dynamic": [LiveSize(5)], "two_delegates": [LiveSize(4)]}


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    "name",
    [
        *("vision", "mlp_dynamic", "two_delegates", "update_cache", "value_list", "scalars", "dtypes"),
        *("symint_view", "mutable_buffer", "attention_cache", "norms", "training", "quantized_linear"),
    ],
)
def test_right_programs_are_right(name: str, programs: Path) -> None:
    report = pteron.compare(programs / f"{name}.pte", Selection(sizes=SHAPES.get(name, ())))
    assert report.is_right, report.first
    assert report.checked + report.idle == report.nodes
    assert not report.unchecked
    for row in report.rows:
        assert row.errors is None or row.errors.cosine > 0.99999


def test_methods_and_weight_files(programs: Path) -> None:
    for method, nodes in (("encode", 2), ("decode", 1)):
        report = pteron.compare(programs / "multi_method.pte", Selection(method))
        assert (report.is_right, report.checked, report.method) == (True, nodes, method)
    path = programs / "external_weights.pte"
    assert pteron.compare(path, data=sorted(programs.glob("external_weights.*.ptd"))).is_right


@pytest.mark.long(every=3)
@pytest.mark.parametrize("model", ["tiny_llama_fp32", "tiny_llama_8da4w", "tiny_llama_q4_static"])
def test_language_models_are_right(model: str, models: Path) -> None:
    report = pteron.compare(models / f"{model}.pte", Prompt([5, 17], 1))
    assert report.is_right, report.first
    assert report.checked + report.idle == report.nodes
    calls = list(dict.fromkeys(row.call for row in report.rows))
    one_by_one = ["prefill at 1"] if "static" in model else []
    assert calls == ["prefill", *one_by_one, "decode at 2"]


def test_folders_of_language_models(models: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes((models / "tiny_llama_q4_emb4.pte").read_bytes())
    assert pteron.compare(tmp_path, Prompt([1])).is_right


# Other references -------------------------------------------------------------------------------


@pytest.mark.long
def test_another_adapter_and_the_other_route(programs: Path, device: Device) -> None:
    for reference in (f"adapter={device.adapter.name}", "route=hardware", "route=software"):
        report = pteron.compare(programs / "norms.pte", reference=reference)
        assert report.is_right, report.first
        is_anyway = reference != f"route={'hardware' if device.target.is_cpu else 'software'}"
        assert report.reference.startswith(reference)
        assert ("runs anyway: only differences from run to run can show" in report.reference) == is_anyway
    other = "hardware" if device.target.is_cpu else "software"
    with broken("norm", "- center) * scale", "- center) * scale * 1.01"):
        assert pteron.compare(programs / "norms.pte", reference=f"route={other}").is_right, "as wrong on both"
        report = pteron.compare(programs / "norms.pte")
    norms = ["et_vk.rms_norm.default", "aten.native_layer_norm.default"]
    assert [row.operators for row in report.departures] == [(name,) for name in norms]


@pytest.mark.long
def test_a_kernel_of_one_route(models: Path, device: Device) -> None:
    if not device.target.is_cpu:
        pytest.skip("breaks a kernel that software adapters run")
    change = ("q4_uniform", "sums[t][c] += scale[c] * part[t][c];", "sums[t][c] += scale[c];")
    with broken(*change):
        report = pteron.compare(
            models / "tiny_llama_q4.pte", Prompt([5, 17]), each_node=True, reference="route=hardware"
        )
    assert report.first is not None
    assert report.first.nodes == (9,)


@pytest.mark.long
@pytest.mark.rewrites
def test_a_wrong_rewrite_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GPUs would join the norm, whose other reader the wrong rewrite below drops.
    monkeypatch.setenv(REWRITES_VARIABLE, "-norm_matvec")
    path = models / "tiny_llama_fp32.pte"
    right = pteron.compare(path, Prompt([5, 17]), reference="rewrites")
    assert right.is_right
    assert {row.rewrite for row in right.rows} >= {"rope_slice", "rope_sdpa", "silu_mul"}
    assert not right.unchecked
    find = REWRITES["silu_mul"]

    def wrong(flow: Flow) -> Iterator[Replacement]:
        for found in find(flow):
            x, _ = found.new.inputs
            yield Replacement(found.old, replace(found.new, inputs=(x, x)))

    monkeypatch.setitem(REWRITES, "silu_mul", wrong)
    report = pteron.compare(path, Prompt([5, 17]), reference="rewrites")
    assert {row.rewrite for row in report.departures} == {"silu_mul"}
    assert report.first is not None
    assert report.first.ran == "pteron.silu_mul"
    assert report.culprit is not None
    assert report.culprit.endswith("which run as pteron.silu_mul by silu_mul")


def test_a_plan_for_several_sizes_is_what_runs(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in what live dims become is found below the maximum."""
    right = Affines.at
    monkeypatch.setattr(Affines, "at", lambda self, numbers: right(self, [n - 1 for n in numbers]))
    path = programs / "mlp_dynamic.pte"
    assert not pteron.compare(path, Selection(sizes=[LiveSize(5)])).is_right
    assert pteron.compare(path).is_right


# What was not checked ---------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes references away."""
    from pteron.reference import find
    from pteron.tools.compare import float64

    def take(*words: str) -> None:
        monkeypatch.setattr(
            float64, "find", lambda name: None if any(word in name for word in words) else find(name)
        )

    return take


def test_a_node_without_a_reference_is_counted_and_named(without: Any, programs: Path) -> None:
    without("relu")
    report = pteron.compare(programs / "mlp.pte", each_node=True)
    assert report.is_right
    assert (report.nodes, report.checked) == (5, 4)
    assert dict(report.unchecked) == {"node 1 aten.relu.default": "aten.relu.default has no reference"}
    assert [row.verdict for row in report.rows].count(Verdict.UNCHECKED) == 1


def test_nothing_checked_is_not_right(without: Any, programs: Path) -> None:
    without(".")
    report = pteron.compare(programs / "mlp.pte")
    assert not report.is_right
    assert (report.checked, len(report.unchecked), report.first) == (0, 5, None)


def test_host_operators_are_named(programs: Path) -> None:
    report = pteron.compare(programs / "two_delegates.pte", Selection(sizes=[LiveSize(4)]))
    assert dict(report.host_operators) == {"aten::sort.values": 1, "aten::cumsum.out": 1, "aten::erf.out": 1}
    assert {row.delegate for row in report.rows} == {0, 1}


def test_progress_is_reported(programs: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    pteron.compare(programs / "mlp.pte", each_node=True, progress=lambda *step: steps.append(step))
    assert steps == [("comparing, step", index + 1, 5) for index in range(5)]


def test_programs_without_nodes_are_refused(programs: Path) -> None:
    with pytest.raises(InputError, match=r"host_only\.pte, method forward: no node runs on a GPU"):
        pteron.compare(programs / "host_only.pte")


# The command line -------------------------------------------------------------------------------


def test_the_table(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(programs / "vision.pte")]) == 0
    text = capsys.readouterr().out
    assert "vision.pte, forward, on " in text
    assert "13 of 13 nodes checked, no departures" in text
    assert "not checked, on the host: 1x aten::mean.out" in text
    assert "cosine" in text


@pytest.mark.long
def test_a_departure_fails(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", str(programs / "mlp.pte"), "--each-node", "--save", str(tmp_path / "it")]
    with broken(*WRONG_RELU):
        assert main(argv) == 1
        text = capsys.readouterr().out
        assert main([*argv, "--in-order", "--all", "--json"]) == 1
    assert "first departure: node 1, aten.relu.default, %" in text
    assert f"saved to {tmp_path / 'it'}" in text
    first = text.index("aten.relu.default", text.index("cosine"))
    assert first < text.index("aten.linear.default"), "the worst comes first"
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not report["is_right"]
    assert [row["verdict"] for row in report["rows"]][:2] == ["within", "departs"]
    script = tmp_path / "it" / "replay.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "not as saved; within tolerance" in done.stdout, "the kernel is as it should be there"


def test_strictness(without: Any, programs: Path) -> None:
    without("relu")
    assert main(["compare", str(programs / "mlp.pte")]) == 0
    assert main(["compare", str(programs / "mlp.pte"), "--strict"]) == 1
    assert main(["compare", str(programs / "mlp.pte"), "--tolerance", "1e-30"]) == 1
    assert not pteron.compare(programs / "mlp.pte", tolerances=Tolerances.of(["sums=0"])).is_right


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--reference", "float32"], "reference 'float32': expected one of float64, adapter=NAME, "),
        (["--reference", "route=fast"], "reference 'route=fast': expected one of "),
        (["--reference", "adapter=none such"], "no adapter matches 'none such'"),
        (["--reference", "expected"], "reference 'expected': expected one of "),
        (["--tolerance", "sum=1"], "tolerance 'sum=1': expected a number such as 1e-3, or one of moved="),
        (["--tokens", "1,2"], "tokens: forward takes (f32[3, 7]), not (tokens"),
        (["--steps", "2"], "--steps needs --tokens"),
        (["--tokens", "1", "--dim", "3"], "--tokens cannot be combined with --input or --dim"),
        (["--method", "backward"], "has no method 'backward'"),
        (["--dim", "3"], "the method has no dynamic dims"),
    ],
)
def test_bad_arguments_get_one_sentence(
    arguments: list[str], complaint: str, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(programs / "mlp.pte"), *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
    assert sum("no GPU was found" not in line for line in printed.err.splitlines()) == 1


def test_no_step_is_made_towards_the_end_of_the_context(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calls, "run_steps", None)
    assert main(["compare", str(STORIES), "--tokens", "1,5", "--steps", "255"]) == 1
    assert "2 tokens and 255 steps exceed the context, which holds 256" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--tokens", "a"], ["--steps", "-1"], ["--seed", "-1"]])
def test_arguments_that_make_no_sense(arguments: list[str], programs: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", str(programs / "mlp.pte"), *arguments])
    assert caught.value.code == 2
