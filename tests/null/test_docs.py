"""Pages name files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Tests, scripts and benchmarks by their paths, and links to other pages."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|scripts|benchmarks|native|docs|examples)/[\w/.-]+)[` ]", text)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # in examples, `](` is no link
    linked = [link for link in re.findall(r"\]\(([\w./-]+)\)", prose) if not link.startswith("http")]
    missing = [path for path in named if not (ROOT / path).exists()]
    missing += [path for path in linked if not (page.parent / path).exists()]
    assert not missing
