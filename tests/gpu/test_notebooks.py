"""The notebooks of docs/notebooks run from top to bottom and print what their text says."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
# What a notebook prints, as patterns in their order.
PRINTED = {
    "first-program": [
        r"most likely: \d+",
        r"Once upon a time, there was a",
        r"dim 1 is 300",
        r"'weights': \d+",
    ],
    "language-model": [r"there was a", r"A red ball \w+", r"The sun \w+", r"' time' \{'time'"],
    "slow-or-wrong-node": [r"µs", r"\bright\b", r"rotary", r"from node \d+"],
}
# Objects that end a cell and are shown as HTML, by what it contains.
SHOWN = {
    "first-program": ["model.pte", "input_pos"],
    "language-model": ["GPU memory"],
    "slow-or-wrong-node": ["of ceiling", "no departures", "first departure"],
}

if not FOLDER.is_dir():
    pytest.skip("docs/ is only in the repository", allow_module_level=True)


def code_cells(path: Path) -> list[str]:
    """The code of a notebook without the cell that installs packages."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", ())
    ]


def as_script(cells: list[str]) -> str:
    """The cells as one program; the object that ends a cell is printed as a notebook would show it."""
    return "\n".join(
        f"{cell}\nprint({last.value.id}._repr_html_())"
        if isinstance(last := ast.parse(cell).body[-1], ast.Expr) and isinstance(last.value, ast.Name)
        else cell
        for cell in cells
    )


def run(path: Path) -> tuple[str, str]:
    """What a notebook prints, and what it shows as HTML: by nbclient, or as a program without it."""
    if all(map(importlib.util.find_spec, ("nbclient", "nbformat", "ipykernel"))):
        return in_jupyter(path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", as_script(code_cells(path))],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stdout


def in_jupyter(path: Path) -> tuple[str, str]:
    nbclient, nbformat = (importlib.import_module(name) for name in ("nbclient", "nbformat"))
    notebook: Any = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in code_cells(path)]
    )
    nbclient.NotebookClient(notebook, timeout=280, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")
    return printed, "".join(output.get("data", {}).get("text/html", "") for output in outputs)


@pytest.mark.long
@pytest.mark.parametrize("name", PRINTED)
def test_notebooks(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    printed, shown = run(path)
    place = 0
    for pattern in PRINTED[name]:
        found = re.compile(pattern).search(printed, place)
        assert found, f"{pattern!r} is not in: {printed[place:]}"
        place = found.start()
    assert [text for text in SHOWN[name] if text not in shown] == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_files(path: Path) -> None:
    """A notebook has no outputs, its first code installs the clone that it is in, and links lead to files."""
    content = json.loads(path.read_text("utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in content["cells"])
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    text = "\n\n".join(
        "".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "markdown"
    )
    (install,) = ["".join(cell["source"]) for cell in content["cells"] if cell["metadata"].get("tags")]
    (clone,) = re.findall(r'^%pip install -q "?([./]+)', install, re.MULTILINE)
    assert (FOLDER / clone / "pyproject.toml").exists()
    links = re.findall(r"\]\((?!https:)([^)]+)\)", text)
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []
    assert path.stem in PRINTED
