"""Fixtures of tests that open pages in a browser: Chromium, driven by playwright, where both are there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT = 60_000  # milliseconds: many share the machine
SIZE = {"width": 1366, "height": 800}  # a laptop's


@dataclass
class Opened:
    """A page in the browser, and what it complained of or asked the network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(TIMEOUT)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def run(self, script: str) -> Any:
        """What an expression is in the page."""
        return self.page.evaluate(script)

    def settle(self) -> None:
        """Wait until the page is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


Open: TypeAlias = Callable[[Path], Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window. Its driver keeps an event loop running, beside which no test can have
    another: so it ends with the module."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium (on Debian: apt install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a file in the browser; at the end, no page may have logged an error or requested another URL."""
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]  # a dict of its two sizes
    every: list[Opened] = []

    def open(path: Path) -> Opened:
        opened = Opened(context.new_page())
        every.append(opened)
        opened.page.goto(path.as_uri())
        opened.settle()
        return opened

    yield open
    for opened in every:
        assert opened.complaints == []
        assert [url for url in opened.requests if not url.startswith("file:")] == []
        assert len(opened.requests) == 1
    context.close()
