"""Benchmarks: every script starts, the page is generated from results, and what counts as a regression."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
RESULTS = sorted((FOLDER / "results").glob("*.json"))
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script as a module of its own."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    return script("figures", monkeypatch)


@pytest.mark.long(every=10)
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_help(path: Path) -> None:
    if "\nimport torch" in path.read_text("utf-8"):
        pytest.importorskip("torch", reason="this one exports with PyTorch")
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="these export with PyTorch")
    compiled = script("compiled", monkeypatch)
    with pytest.raises(SystemExit, match=r"minilm_f32\.pte does not exist: .* export .* --only minilm"):
        compiled.program(tmp_path, "minilm", "f32")
    peer = script("onnx_webgpu", monkeypatch)
    with pytest.raises(SystemExit, match=r"resnet18\.onnx does not exist: .* export "):
        peer.model_bytes(tmp_path, "resnet18")
    with pytest.raises(SystemExit, match="not installed: no-such; pip install json no-such"):
        peer.need("json", "no-such")


# The page -------------------------------------------------------------------------------------


def test_page_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    page = script("page", monkeypatch)
    written = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    assert written == page.page(), "run python benchmarks/page.py"
    assert page.row(["a", 1234, "1.60", None]) == "| a | 1,234 | 1.60 |  |"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_are_complete(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    assert all(result[name] for name in ("title", "command", "machine", "date", "commit", "columns", "rows"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert all(len(row) == len(result["columns"]) for row in result["rows"])
    scripts = re.findall(r"benchmarks/\w+\.py", " ".join(result["command"]))
    assert all((ROOT / script).exists() for script in scripts)


def test_speed_in_the_readme_is_measured() -> None:
    """Every figure of README.md's tables of speed is on the page of benchmarks."""
    tables = (ROOT / "README.md").read_text("utf-8").partition("## Speed")[2].partition("## More")[0]
    rows = [line.split("|")[2:-1] for line in tables.splitlines() if re.match(r"\| \w", line)]
    cells = [cell.strip() for row in rows for cell in row]
    figures = [cell for cell in cells if re.fullmatch(r"[\d.,]+", cell)]
    names = [cell for cell in cells if re.search("[A-Za-z]", cell)]
    assert len(figures) > 40
    assert len(figures) + len(names) + cells.count("") == len(cells), "a cell has one figure"
    measured = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    assert not [
        figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", measured)
    ]


def test_dense_models_in_the_readme_are_of_one_library() -> None:
    """Dawn's calls; where two runs differ, the slower one."""
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    row = r"^\| ([\w/-]+), (f32|f16)[^|]*\|[^|]*\| (?:[\d.]+ to )?([\d.]+), "
    measured = re.findall(row, page, re.MULTILINE)
    _, _, table = (ROOT / "README.md").read_text("utf-8").partition("| ms a call, batch 1, with copies |")
    rows = re.findall(r"^\| ([\w/-]+)[^|]* \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", table, re.MULTILINE)
    assert len(rows) == 5
    assert {
        (name, dtype, ms) for name, *row in rows for dtype, ms in zip(("f32", "f16"), row, strict=True)
    } <= {*measured}


# Programs ----------------------------------------------------------------------------------------


def test_experts_of_a_token_are_as_large_as_the_dense_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large weights are the same in all layers, routers are not."""
    made = script("llama_program", monkeypatch)
    monkeypatch.setattr(made, "LARGE", 8 * 128 * 4 + 1)  # bytes of a router, and one more
    sizes = {"width": 128, "layers": 2, "heads": 4, "key_heads": 2, "head": 32, "vocabulary": 64}
    dense = made.patterned(made.Shape(hidden=256, **sizes))
    mixed = made.patterned(made.Shape(hidden=128, experts=8, chosen=2, **sizes))
    for name in ("w1", "w2", "w3"):
        whole, all_experts = (
            prod(checkpoint.tensors[f"layers.1.feed_forward.{place}.weight"].shape)
            for checkpoint, place in ((dense, name), (mixed, f"experts.{name}"))
        )
        assert all_experts * 2 // 8 == whole
    program = mixed.program(made.Options("4w", 64, rounding="extremes"))
    data = made.read_once(program.named_data)
    place = "layers.{}.feed_forward.experts.w1.weight.4_bits"
    assert data[place.format(0)].read() == program.named_data[place.format(0)].read()
    assert data[place.format(1)].read() == data[place.format(0)].read()
    router = "layers.{}.feed_forward.router.weight"
    assert data[router.format(1)].read() != data[router.format(0)].read()


# Figures -----------------------------------------------------------------------------------------


def test_median_spread_and_floor(figures: Any) -> None:
    time = figures.Figure.of("call", [3.0, 1.0, 2.0, 2.5, 9.0], "ms", floor=0.5)
    assert (time.value, time.spread) == (2.5, 0.5)
    assert time.fraction == pytest.approx(0.2)
    rate = figures.Figure.of("decode", [100.0], "tokens/s", floor=400.0, higher_is_better=True)
    assert rate.fraction == pytest.approx(0.25)
    assert str(rate) == "decode: 100 ± 0 tokens/s, 25% of 400"
    assert figures.Figure("plain", 1.0, "s").fraction is None


@pytest.mark.parametrize(
    ("before", "after", "spread", "higher", "worse"),
    [
        (100, 104, 0, False, False),
        (100, 106, 0, False, True),
        (100, 50, 0, False, False),
        (100, 94, 0, True, True),
        (100, 96, 0, True, False),
        (100, 120, 7, False, False),
        (100, 122, 7, False, True),
    ],
)
def test_what_is_worse(
    figures: Any, before: float, after: float, spread: float, higher: bool, worse: bool
) -> None:
    old = figures.Figure("figure", before, "ms", higher_is_better=higher)
    new = figures.Figure("figure", after, "ms", spread, higher_is_better=higher)
    assert new.is_worse_than(old) is worse


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (1.2, 1)])
def test_files_are_compared(
    figures: Any, value: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    figures.write(old, "a machine", [figures.Figure("call", 1.0, "ms"), figures.Figure("gone", 1.0, "ms")])
    figures.write(new, "a machine", [figures.Figure("call", value, "ms")])
    assert figures.main([str(old), str(new)]) == code
    printed = capsys.readouterr().out
    assert ("WORSE" in printed) == bool(code)
    assert f"only in {old}: gone" in printed
