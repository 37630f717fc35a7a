"""The example of the npm package's README, with the package as npm packs it, in a browser."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from node_fixtures import WEB, npm

pytest.importorskip("pteron.web", reason="this checkout has no player")

from site_fixtures import SiteServer

import pteron
from pteron.llm import LLM

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = """<!DOCTYPE html><title>Example</title>
<script type="importmap">{ "imports": { "pteron": "./package/dist/player.js" } }</script>
<script type="module">%s</script>"""


def test_the_example_of_the_readme(gpu_browser: Browser, tmp_path: Path) -> None:
    (packed,) = json.loads(npm("pack", "--json", "--pack-destination", str(tmp_path)))
    with tarfile.open(tmp_path / packed["filename"]) as archive:
        archive.extractall(tmp_path, filter="data")
    pteron.export_web("stories15m", tmp_path / "story", variants=["software"], lengths=[1, 16])
    example = re.search(r"```js\n(.*?)```", (WEB / "README.md").read_text("utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "index.html").write_text(PAGE % example[1], "utf-8")
    pieces = LLM("stories15m").generate("Once upon a time", max_new_tokens=20, temperature=0.0)
    text = "".join(piece.text for piece in pieces)
    server = SiteServer(tmp_path)
    page = gpu_browser.new_page()
    page.goto(server.url)
    page.wait_for_function(
        "text => document.body.textContent.trim() === text", arg=text.strip(), timeout=120_000
    )
    page.close()
    server.close()
