"""The chat page with the real server and a small model: it shows the model's text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from chat_fixtures import LAPTOP, Tab, opened

pytest.importorskip("fastapi", reason="fastapi is not installed (extra `serve`)")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra `serve`)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra `serve`)")

from canned_server import served

from pteron.llm import LLM, Sampling
from pteron.serving import Engine
from pteron.serving.http import create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

NAME = "stories15m"
QUESTION = "Tell me about a dog."
TOKENS = 24


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport=LAPTOP)
    yield context
    context.close()


@contextmanager
def chatting(context: BrowserContext, engine: Engine, count: int = 1, **options: Any) -> Iterator[list[Tab]]:
    """Tabs with a server; none may log an error."""
    with served(create_app(engine, name=NAME, **options)) as address:
        tabs = [opened(context, address) for _ in range(count)]
        yield tabs
        for tab in tabs:
            tab.check(address)


def wish(tab: Tab, **wishes: object) -> None:
    tab.button("Settings").click()
    for name, value in wishes.items():
        tab.page.fill(f"#field-{name}", str(value))
    tab.button("Close settings").click()


def answer(llm: LLM, question: str, **wishes: Any) -> str:
    """The model's answer without the server."""
    pieces = llm.chat(
        [{"role": "user", "content": question}], sampling=Sampling(**wishes), max_new_tokens=TOKENS
    )
    return "".join(piece.text for piece in pieces).strip()


def test_the_page_shows_the_models_text(
    context: BrowserContext, stories: LLM, stories_engine: Engine
) -> None:
    with chatting(context, stories_engine) as [tab]:
        tab.sees(NAME, within="#model")
        wish(tab, temperature=0, max_tokens=TOKENS)
        tab.ask(QUESTION)
        tab.sees("first after")
        tab.until_idle()
        assert tab.texts() == [answer(stories, QUESTION, temperature=0.0)]
        tab.sees(f"{TOKENS} tokens ·")
        tab.sees("it has the maximum number of tokens")
        tab.sees("of 256 tokens of context", within="#context")


def test_two_tabs_at_once_and_stopping(context: BrowserContext, stories: LLM, stories_engine: Engine) -> None:
    with chatting(context, stories_engine, 2) as tabs:
        for tab in tabs:
            tab.sees(NAME, within="#model")
            wish(tab, temperature=0, max_tokens=TOKENS)
        for tab, word in zip(tabs, ("dog", "cat"), strict=True):
            tab.ask(f"Tell me about a {word}.")
        for tab, word in zip(tabs, ("dog", "cat"), strict=True):
            tab.sees("first after")
            tab.until_idle()
            assert tab.texts() == [answer(stories, f"Tell me about a {word}.", temperature=0.0)]
        tabs[0].button("New conversation").click()
        tabs[0].ask("Go on and on.")
        tabs[0].page.keyboard.press("Escape")
        tabs[0].until_idle()
        deadline = time.monotonic() + 60
        while stories_engine.load.running or stories_engine.load.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        tabs[1].page.bring_to_front()  # browsers draw no tab behind another
        tabs[1].until("document.querySelectorAll('#conversations a').length === 3")


def test_a_full_context(context: BrowserContext, stories_engine: Engine) -> None:
    """The model's 256 tokens are full after the first answer; the conversation goes on without it."""
    with chatting(context, stories_engine) as [tab]:
        tab.sees(NAME, within="#model")
        wish(tab, temperature=0)
        tab.ask("Once upon a time there was a cat. " * 14)
        tab.sees("The context is full: the answer ends here.")
        tab.until_idle()
        tab.sees("256 of 256 tokens of context", within="#context")
        wish(tab, max_tokens=TOKENS)
        tab.ask("And a cat?")
        tab.sees("The context is full: the prompt has ")
        tab.button("Go on without the oldest").click()
        tab.sees("2 messages above are no longer sent")
        tab.sees("it has the maximum number of tokens")
