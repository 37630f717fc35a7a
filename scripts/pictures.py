"""Makes docs/pictures by running the commands that they show: python scripts/pictures.py [NAME ...]

Names are profile, bench, compare and serve; by default all. Pages need playwright and Chromium.
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
    output_of(["profile", str(MODEL), "--decode", "--runs", "30", "--html", str(page_file)])
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
    output_of([*argv, "--json", str(kept)])
    shown = "PTERON_REWRITES=none pteron bench tiny_llama_q4.pte --decode … --against before.json"
    draw("bench.svg", shown, output_of([*argv, "--against", str(kept)], PTERON_REWRITES="none"))


def compare(folder: Path) -> None:
    """A broken kernel, found."""
    argv = ["compare", str(TINY), "--tokens", "5,17,99", "--each-node"]
    shown = "pteron compare tiny_llama_q4.pte --tokens 5,17,99 --each-node"
    draw("compare.svg", shown, output_of(argv, code=BROKEN))


def serve(folder: Path) -> None:
    """The page at `/`, after two questions."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "pteron", "serve", "stories15m", "--port", "0", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = next(path for name in BROWSERS if (path := shutil.which(name)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 640})
            page.goto(address)
            for question in (
                "Tell me about a dog.",
                "Tell me a story about a little bird that learns to fly.",
            ):
                page.click("#new")
                page.fill("#question", question)
                page.press("#question", "Enter")
                page.locator(".message.assistant", has_text="first after").wait_for()
                page.locator("#send[aria-label=Send]").wait_for(timeout=300_000)
            page.mouse.move(0, 0)
            page.screenshot(path=PICTURES / "serve.png")
            browser.close()
        server.terminate()


def output_of(argv: list[str], code: str | None = None, **variables: str) -> str:
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
    """Draw output as a picture of a terminal of the same width, without fonts to load."""
    lines = Text.from_ansi(output.rstrip()).split()
    for line in lines:
        line.rstrip()
    console = Console(record=True, width=max(map(len, lines)), file=io.StringIO())
    console.print(Text("\n").join(lines))
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", console.export_svg(title=title))
    (PICTURES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    makers = {"profile": profile, "bench": bench, "compare": compare, "serve": serve}
    for name in sys.argv[1:] or makers:
        with tempfile.TemporaryDirectory() as folder:
            makers[name](Path(folder))
