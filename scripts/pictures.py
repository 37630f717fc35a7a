"""Makes docs/pictures anew, by running the commands that they show: python scripts/pictures.py [NAME ...]

Names are profile, bench and compare; by default all. The page needs playwright and Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
MODEL = ROOT / "src" / "pteron" / "models" / "stories15m"
TINY = ROOT / "tests" / "fixtures" / "models" / "tiny_llama_q4.pte"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# `pteron compare` with one sign of a kernel turned round.
BROKEN = """
import sys
from broken_kernel import broken
from pteron.cli import main
with broken("rope", "-(x.y * a.y)", "x.y * a.y"):
    sys.exit(main(sys.argv[1:]))
"""


def profile(folder: Path) -> None:
    """The page of a decode step, as far as a large window shows it."""
    from playwright.sync_api import sync_playwright

    page_file = folder / "profile.html"
    said(["profile", str(MODEL), "--decode", "--runs", "30", "--html", str(page_file)])
    found = next(path for name in BROWSERS if (path := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 1100})
        page.goto(page_file.as_uri())
        page.select_option("#by", "family")
        page.screenshot(path=PICTURES / "profile.png")
        browser.close()


def bench(folder: Path) -> None:
    """A language model measured twice, the second time without what makes it quick."""
    kept = folder / "before.json"
    argv = ["bench", str(TINY), "--prompt-tokens", "16", "--decode", "--context", "20"]
    said([*argv, "--json", str(kept)])
    shown = "PTERON_REWRITES=none pteron bench tiny_llama_q4.pte --decode … --against before.json"
    draw("bench.svg", shown, said([*argv, "--against", str(kept)], PTERON_REWRITES="none"))


def compare(folder: Path) -> None:
    """A broken kernel, found."""
    argv = ["compare", str(TINY), "--tokens", "5,17,99", "--each-node"]
    shown = "pteron compare tiny_llama_q4.pte --tokens 5,17,99 --each-node"
    draw("compare.svg", shown, said(argv, code=BROKEN))


def said(argv: list[str], code: str | None = None, **variables: str) -> str:
    """What a command writes to a terminal of a hundred and fifty columns, colours and all."""
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "gpu")]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "150", "PYTHONPATH": os.pathsep.join(paths)}
    environment |= variables
    program = ["-c", code] if code else ["-m", "pteron"]
    ran = subprocess.run(
        [sys.executable, *program, *argv], env=environment, capture_output=True, text=True, check=False
    )
    if not ran.stdout:
        raise SystemExit(ran.stderr)
    return ran.stdout


def draw(name: str, title: str, output: str) -> None:
    """What was said, as a picture of a terminal just as wide, which loads no fonts."""
    lines = Text.from_ansi(output.rstrip()).split()
    for line in lines:
        line.rstrip()
    console = Console(record=True, width=max(map(len, lines)), file=io.StringIO())
    console.print(Text("\n").join(lines))
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", console.export_svg(title=title))
    (PICTURES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    makers = {"profile": profile, "bench": bench, "compare": compare}
    for name in sys.argv[1:] or makers:
        with tempfile.TemporaryDirectory() as folder:
            makers[name](Path(folder))
