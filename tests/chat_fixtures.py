"""A chat page in the browser with a made-up server behind it: what tests do there, and what they wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from browser_fixtures import TIMEOUT, Opened

if TYPE_CHECKING:
    from canned_server import Canned
    from playwright.sync_api import Browser, BrowserContext, Locator

LAPTOP: Any = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 640}


class Tab(Opened):
    """A tab with the page in it."""

    def ask(self, text: str) -> None:
        self.page.fill("#question", text)
        self.page.press("#question", "Enter")

    def converse(self, text: str, answer: str | None = None) -> None:
        """Ask, and wait for the end of an answer, by default the one of a server without a reply."""
        self.ask(text)
        self.sees(answer or f"You said: {text}")
        self.until_idle()

    def sees(self, text: str, within: str = "#thread") -> None:
        """Wait until a part of the page has a text."""
        self.page.locator(within).get_by_text(text).last.wait_for()

    def until(self, expression: str) -> None:
        """Wait until an expression is true; playwright's own way would need a policy that allows `eval`."""
        deadline = time.monotonic() + TIMEOUT / 1000
        while not self.run(expression):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            self.page.wait_for_timeout(20)

    def until_idle(self) -> None:
        """Wait until no answer is being written here."""
        self.page.locator("#send[aria-label=Send]").wait_for()

    def texts(self, role: str = "assistant") -> list[str]:
        return [text.strip() for text in self.page.locator(f".message.{role} .said .text").all_inner_texts()]

    def titles(self) -> list[str]:
        return self.page.locator("#conversations a").all_inner_texts()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True).last

    def reload(self) -> None:
        self.page.reload()
        self.sees("canned", within="#model")

    def check(self, address: str) -> None:
        """Check that no script failed, no policy was violated, and all requests went to the server."""
        # A refused request is not an error of the page.
        assert [text for text in self.complaints if "Failed to load resource" not in text] == []
        assert [url for url in self.requests if not url.startswith(address)] == []


@dataclass
class Chat:
    """One user's browser, whose tabs share what it stores, and the server."""

    server: Canned
    context: BrowserContext
    tabs: list[Tab] = field(default_factory=list)

    def tab(self, fragment: str = "", *, is_ready: bool = True) -> Tab:
        tab = opened(self.context, self.server.address + fragment)
        self.tabs.append(tab)
        if is_ready:
            tab.sees(self.server.models[0], within="#model")
        return tab

    def check(self) -> None:
        for tab in self.tabs:
            tab.check(self.server.address)


def opened(context: BrowserContext, address: str) -> Tab:
    tab = Tab(context.new_page())
    tab.page.goto(address)
    return tab


@pytest.fixture(scope="module")
def canned_address() -> Iterator[tuple[Canned, str]]:
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra `serve`)")
    from canned_server import Canned, served

    canned = Canned()
    with served(canned.app) as address:
        yield canned, address


@contextmanager
def chatting(browser: Browser, canned: Canned, address: str, **wishes: Any) -> Iterator[Chat]:
    """A user's browser, of some kind."""
    canned.start_over(address)
    context = browser.new_context(**wishes)
    chat = Chat(canned, context)
    yield chat
    chat.check()
    context.close()
    canned.release_all()


@pytest.fixture
def chat(browser: Browser, canned_address: tuple[Canned, str]) -> Iterator[Chat]:
    with chatting(browser, *canned_address, viewport=LAPTOP) as chat:
        yield chat


@pytest.fixture
def tab(chat: Chat) -> Tab:
    return chat.tab()


@pytest.fixture
def phone(browser: Browser, canned_address: tuple[Canned, str]) -> Iterator[Chat]:
    with chatting(browser, *canned_address, viewport=PHONE, has_touch=True, is_mobile=True) as chat:
        yield chat
