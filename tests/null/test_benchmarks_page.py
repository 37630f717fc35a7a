"""benchmarks/README.md is what benchmarks/page.py writes from benchmarks/results, and README.md quotes it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_generated(page: ModuleType) -> None:
    written = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    assert written == page.page(), "run python benchmarks/page.py"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_are_complete(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    assert all(result[name] for name in ("title", "command", "machine", "date", "commit", "columns", "rows"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert all(len(row) == len(result["columns"]) for row in result["rows"])
    scripts = re.findall(r"benchmarks/\w+\.py", " ".join(result["command"]))
    assert all((ROOT / script).exists() for script in scripts)


def test_cells(page: ModuleType) -> None:
    assert page.row(["a", 1234, "1.60", None]) == "| a | 1,234 | 1.60 |  |"


def test_speed_in_the_readme_is_measured() -> None:
    """Every figure of README.md's table of speed is on the page of benchmarks."""
    table = (ROOT / "README.md").read_text("utf-8").partition("## Speed")[2].partition("## More")[0]
    measured = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    figures = re.findall(
        r"\d[\d,]*\.?\d+(?= (?:tokens/s|ms|s |to))|(?<=: )\d[\d,]*\.?\d*|(?<=graphs )[\d.]+", table
    )
    assert len(figures) > 12
    assert not [figure for figure in figures if figure not in measured]
