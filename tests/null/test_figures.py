"""Benchmark figures: what counts as noise, and what as a regression."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "figures.py"


@pytest.fixture(scope="module")
def figures() -> Any:
    spec = importlib.util.spec_from_file_location("figures", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


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


def test_what_the_host_decides_may_differ_more(figures: Any) -> None:
    old = figures.Figure("load", 1.0, "s")
    for value, worse in ((1.15, False), (1.25, True)):
        new = figures.Figure.of("load", [value], "s", tolerance=figures.HOST_TOLERANCE)
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


def test_machines_are_not_compared(figures: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    figures.write(old, "a machine", [])
    figures.write(new, "another", [])
    assert figures.main([str(old), str(new)]) == 2
    assert "not to be compared" in capsys.readouterr().out


def test_files_gather_figures(figures: Any, tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    figures.add(path, "a machine", [figures.Figure("call", 1.0, "ms"), figures.Figure("load", 1.0, "s")])
    figures.add(
        path, None, [figures.Figure("call", 2.0, "ms")]
    )  # of the same machine, with no adapter of its own
    machine, found = figures.read(path)
    assert machine == "a machine"
    assert {name: figure.value for name, figure in found.items()} == {"call": 2.0, "load": 1.0}
    with pytest.raises(SystemExit, match="of a machine, not of another"):
        figures.add(path, "another", [])
