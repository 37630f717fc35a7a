"""`pteron bench` on programs and on a tiny language model."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import pteron
from pteron import Bench, InputError
from pteron.cli import main
from pteron.tools.bench import Pace
from pteron.tools.bench.report import CONTROL
from pteron.tools.inputs import LiveSize
from pteron.tools.workload import Decode, Prefill, Selection, Workload

QUICK = Pace(runs=5, seconds=1, warmup=1, tokens=4)


def test_live_sizes_of_a_program(programs: Path) -> None:
    works = [Selection(sizes=[LiveSize(size)]) for size in (1, 4)]
    cases = pteron.bench(programs / "mlp_dynamic.pte", works, pace=QUICK).cases
    found = {(case.what, case.inputs) for case in cases}
    assert found == {
        *(
            (what, (f"float32[{size}, 7]",))
            for what in ("forward", "forward, back to back")
            for size in (1, 4)
        ),
        (CONTROL, ()),
    }
    for case in cases:
        assert len(case.samples) == 10
        assert 0 < min(case.samples) <= case.percentile(50) <= case.percentile(90) <= case.percentile(99)


def test_a_language_model(models: Path) -> None:
    """Nothing is left behind but plans, which the first time makes."""
    with pteron.load(models / "tiny_llama_q4.pte") as program:
        works: list[Workload] = [Prefill(6), Decode(9)]
        pteron.bench(program, works, pace=QUICK)
        gc.collect()  # programs that earlier tests left open
        before = program.device.buffer_bytes
        bench = pteron.bench(program, works, pace=QUICK)
        assert program.device.buffer_bytes == before
    prefill, decode, _ = bench.cases
    assert (prefill.what, prefill.amount, prefill.unit) == ("prefill of 6 tokens", 6, "token")
    assert prefill.rate == pytest.approx(6 / prefill.percentile(50))
    assert (decode.what, decode.amount) == ("decode at context 9", 1)
    assert all(sample > 0 for sample in decode.samples)


def test_the_command(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Adapters side by side, kept, and compared with what was kept."""
    argv = ["bench", str(programs / "mlp.pte"), "--runs", "5", "--warmup", "1", "--tolerance", "1e6"]
    kept = tmp_path / "kept.json"
    assert main([*argv, "--device", "0", "--json", str(kept)]) == 0
    text = capsys.readouterr().out
    for heading in ("p50", "p90", "p95", "p99", "min", "mean", "samples", "calls"):
        assert heading in text
    assert len(Bench.read(kept).cases) == 3
    assert main([*argv, "--against", str(kept)]) == 0
    assert "verdict" in capsys.readouterr().out


def test_another_precision_is_another_case(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bench", str(programs / "mlp.pte"), "--runs", "5", "--warmup", "1"]
    kept = tmp_path / "kept.json"
    assert main([*argv, "--products", "f16", "--digits", "2", "--json", str(kept)]) == 0
    assert all(", 2 digits" in case.device for case in Bench.read(kept).cases)
    assert all(", f16 products" in case.device for case in Bench.read(kept).cases)
    capsys.readouterr()
    assert main([*argv, "--against", str(kept)]) == 1
    assert "or precisions, which are not compared: mlp.pte, forward" in capsys.readouterr().err


def test_two_precisions_side_by_side(programs: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    argv = ["bench", str(programs / "mlp.pte"), "--runs", "5", "--warmup", "1", "--json", str(kept)]
    assert main([*argv, "--products", "f32", "--products", "f16"]) == 0
    cases = Bench.read(kept).cases
    assert [", f16 products" in case.device for case in cases] == [False] * 3 + [True] * 3
    assert len({case.key for case in cases}) == 6


def test_a_loaded_program_has_its_precision(programs: Path) -> None:
    with pteron.load(programs / "mlp.pte") as program, pytest.raises(InputError, match="has its precision"):
        pteron.bench(program, products="f16")


def test_adapters_side_by_side(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only adapter of a machine compared with itself."""
    argv = ["bench", str(programs / "mlp.pte"), "--runs", "5", "--warmup", "1"]
    assert main([*argv, "--device", "0", "--device", "0"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "calls" in line]
    assert len(lines) == 6


def test_a_folder_is_a_language_model(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.pte").write_bytes((models / "tiny_llama_q4.pte").read_bytes())
    assert main(["bench", str(tmp_path), "--runs", "5", "--warmup", "1", "--tokens", "2"]) == 0
    text = capsys.readouterr().out
    assert "prefill of " in text
    assert "decode at context " in text
    assert " tokens" in text


def test_what_does_not_fit(models: Path, programs: Path) -> None:
    with pytest.raises(InputError, match="exceeds the context"):
        pteron.bench(models / "tiny_llama_q4.pte", [Decode(5000)], pace=QUICK)
    with pytest.raises(InputError, match="expected a context of at least one token"):
        pteron.bench(models / "tiny_llama_q4.pte", [Decode(0)], pace=QUICK)
    with pytest.raises(pteron.UnsupportedError, match="is not a language model"):
        pteron.bench(programs / "mlp.pte", [Prefill(3)], pace=QUICK)
