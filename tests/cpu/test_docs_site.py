"""The documentation site is built without a warning, and its reference has every public name."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pteron

ROOT = Path(__file__).parents[2]

if not (ROOT / "mkdocs.yml").exists():
    pytest.skip("mkdocs.yml is only in the repository", allow_module_level=True)


def test_every_public_name_is_in_the_reference() -> None:
    """Without building: pages of docs/reference list the names as mkdocstrings takes them."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    names = [name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.M)]
    assert len(names) == len(set(names))
    assert {f"pteron.{name}" for name in pteron.__all__} <= set(names)


def test_every_page_is_in_the_navigation() -> None:
    """As the strict build checks, for those who have no mkdocs."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    listed = [page.as_posix() for page in pages if page.parent.name != "notes"]
    assert [page for page in listed if f" {page}\n" not in navigation] == []


def test_titles_differ() -> None:
    """Search results and browser tabs show the titles of the navigation."""
    titles = re.findall(r"^ +- \"?(.+?)\"?: [\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    assert len(titles) > 40
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


def test_lists_stay_together() -> None:
    """Python-Markdown ends a numbered list at a block that is indented by less than four spaces."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if re.search(r"^ {1,3}```", page.read_text("utf-8"), re.M)] == []


@pytest.mark.long
def test_the_site(tmp_path: Path) -> None:
    """A strict build fails for a link or anchor that leads nowhere, and for a page outside the navigation."""
    if not all(map(importlib.util.find_spec, ("material", "mkdocs", "mkdocstrings"))):
        pytest.skip("mkdocs is not installed (scripts/docs installs it)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "index.html").read_text("utf-8")
    assert 'href="python/"' in start
    assert 'href="docs/' not in start, "a link of the README was not changed"
    assert ">docs/" not in start, "a link of the README has a file's name as its text"
    reference = (tmp_path / "reference" / "programs" / "index.html").read_text("utf-8")
    assert 'id="pteron.Program.sequence"' in reference
    assert "opened when first needed" in reference, "docstrings are missing"
    indexed = json.loads((tmp_path / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert {"comparison/", "benchmarks/", "reference/llm/", "security/"} <= {
        each["location"] for each in indexed
    }
