"""The examples of docs/sampling.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pteron.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page() -> None:
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "sampling.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)


@pytest.mark.parametrize("form", ["json", "regex"])
def test_the_command(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["cat", "dog"]}', "utf-8")
    given = ["--json-schema", str(schema)] if form == "json" else ["--regex", '"(cat|dog)"']
    told = ["generate", "--model", "stories15m", "--prompt", "A ", "--quiet", "--presence-penalty", "0.5"]
    assert main([*told, *given]) == 0
    assert re.search(r'"(cat|dog)"', capsys.readouterr().out)
