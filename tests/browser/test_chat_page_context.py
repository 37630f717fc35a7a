"""The chat page when the model's context is full: it offers to drop the oldest turns, or to start anew."""

from __future__ import annotations

from typing import Any

import pytest
from canned_server import CONTEXT
from chat_fixtures import Chat, Tab

GO_ON = "Go on without the oldest"
TOO_LONG: dict[str, Any] = {
    "status": 400,
    "message": "the prompt has 3000 tokens; the model's context holds 2048 tokens",
    "code": "context_length_exceeded",
}


def fill(chat: Chat, tab: Tab, text: str) -> None:
    """Ask for an answer that reaches the end of the context."""
    chat.server.reply("As far", " as here", finish="length", tokens=CONTEXT - 2)
    tab.converse(text, "The context is full: the answer ends here.")


def contents(chat: Chat) -> list[str]:
    return [message["content"] for message in chat.server.bodies[-1]["messages"]]


def test_an_answer_that_fills_the_context(chat: Chat, tab: Tab) -> None:
    for text in ("One", "Two", "Three"):
        tab.converse(text)
    fill(chat, tab, "Four")
    tab.button(GO_ON).click()
    tab.sees("4 messages above are no longer sent: the context was full.")
    assert tab.page.locator(".message.dropped").count() == 4
    assert tab.page.get_by_role("button", name=GO_ON).count() == 0
    assert tab.run("document.activeElement.id") == "question"
    tab.converse("Five")
    assert contents(chat) == ["Three", "You said: Three", "Four", "As far as here", "Five"]
    tab.reload()
    tab.sees("4 messages above")
    tab.button("Send them again").click()
    tab.page.locator(".divider").wait_for(state="detached")
    tab.converse("Six")
    assert contents(chat)[0] == "One"


def test_a_single_answer_that_fills_the_context(chat: Chat, tab: Tab) -> None:
    fill(chat, tab, "Talk")
    tab.button(GO_ON).click()
    tab.sees("2 messages above are no longer sent")
    tab.converse("Next")
    assert contents(chat) == ["Next"]


def test_a_question_that_no_longer_fits(chat: Chat, tab: Tab) -> None:
    """It is sent again without the oldest turns, until it fits."""
    for text in ("One", "Two", "Three"):
        tab.converse(text)
    refused = "The context is full: the prompt has 3000 tokens; the model's context holds 2048 tokens."
    for _ in range(2):
        chat.server.reply(**TOO_LONG)
    tab.converse("Four", refused)
    tab.button(GO_ON).click()
    tab.sees("4 messages above")
    tab.sees(refused)
    tab.until_idle()
    tab.button(GO_ON).click()
    tab.sees("You said: Four")
    tab.until_idle()
    tab.sees("6 messages above")
    assert [len(body["messages"]) for body in chat.server.bodies[-3:]] == [7, 3, 1]
    assert tab.texts() == [f"You said: {text}" for text in ("One", "Two", "Three", "Four")]


def test_a_question_that_never_fits(chat: Chat, tab: Tab) -> None:
    chat.server.reply(**TOO_LONG)
    tab.converse("Long", "The context is full:")
    assert tab.page.get_by_role("button", name=GO_ON).count() == 0
    assert tab.button("Try again").is_visible()


@pytest.mark.parametrize("tokens", [CONTEXT - 3, None])
def test_an_answer_that_is_only_long(chat: Chat, tab: Tab, tokens: int | None) -> None:
    chat.server.reply("As far", " as here", finish="length", tokens=tokens)
    tab.converse("Talk", "it has the maximum number of tokens")
    assert tab.page.get_by_role("button", name=GO_ON).count() == 0


def test_a_model_that_is_loaded_at_its_first_question(chat: Chat) -> None:
    """Only then the server knows its context."""
    chat.server.context = None
    tab = chat.tab()
    reply = chat.server.reply("As far", " as here", finish="length", tokens=CONTEXT, held=True)
    tab.ask("Talk")
    assert reply.is_asked.wait(60)
    chat.server.context = CONTEXT
    reply.release()
    tab.sees("The context is full: the answer ends here.")
    tab.sees("2,048 of 2,048 tokens of context", within="#context")


def test_starting_anew(chat: Chat, tab: Tab) -> None:
    """The new conversation has the same system prompt and settings."""
    tab.button("Settings").click()
    tab.page.get_by_label("System prompt").fill("Be brief.")
    tab.page.get_by_label("Temperature").fill("0")
    fill(chat, tab, "Talk")
    tab.page.locator("#thread").get_by_role("button", name="New conversation").click()
    tab.sees("New conversation", within="h1")
    tab.converse("Next")
    assert contents(chat) == ["Be brief.", "Next"]
    assert chat.server.bodies[-1]["temperature"] == 0
    assert tab.titles() == ["Next", "Talk"]
