"""What is measured before a release: compared with the machine's own baseline, which `--keep` replaces."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script, with baselines of its own; its tables give what `measured` says."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("figures", "release"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("release", FOLDER / "release.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "BASELINES", tmp_path / "baseline")
    script.measured = 1.0

    def measure(program: str, saved: Path) -> None:
        figure = script.figures.Figure("load: ready", script.measured, "s")
        script.figures.add(saved, "A GPU (Discrete, Vulkan)", [figure])

    monkeypatch.setattr(script, "measure", measure)
    return script


def run(release: Any, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["release.py", "program.pte", *options])
    code: int = release.main()
    return code


def test_a_loss_is_an_error(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(release, monkeypatch) == 0  # with nothing to compare
    assert run(release, monkeypatch, "--keep") == 0
    assert [path.name for path in release.BASELINES.iterdir()] == ["a-gpu-discrete-vulkan.json"]
    for measured, code in ((1.02, 0), (0.5, 0), (1.2, 1)):
        release.measured = measured
        assert run(release, monkeypatch) == code
    assert run(release, monkeypatch, "--keep") == 1  # said, and kept as wanted
    assert run(release, monkeypatch) == 0


def test_its_tables_are_scripts(release: Any) -> None:
    for script, *_ in release.TABLES:
        assert (FOLDER / script).is_file()


def test_figures_are_not_mixed(release: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved = tmp_path / "figures.json"
    assert run(release, monkeypatch, "--save", str(saved)) == 0
    with pytest.raises(SystemExit):
        run(release, monkeypatch, "--save", str(saved))
