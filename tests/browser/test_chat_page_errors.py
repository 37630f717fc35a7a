"""The chat page when a server rejects a request, is busy, needs a key, breaks the stream or is gone."""

from __future__ import annotations

from typing import Any

import pytest
from chat_fixtures import Chat, Tab


def test_an_error_is_shown_and_can_be_retried(chat: Chat, tab: Tab) -> None:
    chat.server.reply(status=400, message="the prompt has 900 tokens, and the context holds 256")
    tab.converse("Long", "The prompt has 900 tokens, and the context holds 256.")
    chat.server.reply("Shorter.")
    tab.button("Try again").click()
    tab.sees("Shorter.")
    tab.until_idle()
    assert tab.page.locator(".note.bad:visible").count() == 0
    assert chat.server.bodies[0] == chat.server.bodies[1]


def test_an_error_without_a_message(chat: Chat, tab: Tab) -> None:
    chat.context.route(
        "**/v1/chat/completions", lambda route: route.fulfill(status=502, body="<h1>Bad gateway")
    )
    tab.ask("Hello")
    tab.sees("The server answered 502 Bad Gateway.")


def test_the_question_after_an_error_includes_the_failed_one(chat: Chat, tab: Tab) -> None:
    """Chat templates need questions and answers to alternate."""
    chat.server.reply(status=500, message="no luck")
    tab.converse("One", "No luck.")
    tab.converse("Two", "You said:")
    assert chat.server.bodies[-1]["messages"] == [{"role": "user", "content": "One\n\nTwo"}]


FAR = ("As far ", "as here")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"message": "the device was lost"}, "The device was lost."),
        ({"is_broken": True}, "The connection ended before the answer was complete."),
        ({"finish": "length"}, "has the maximum number of tokens"),
        ({"finish": "context"}, "the context is full"),
    ],
    ids=str,
)
def test_why_an_answer_ends(chat: Chat, tab: Tab, reply: dict[str, Any], said: str) -> None:
    chat.server.reply(*FAR, **reply)
    tab.converse("Hello", said)
    assert tab.texts() == ["As far as here"]
    assert tab.button("Try again").is_visible() == ("finish" not in reply)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", "<p>Hello", "The server does not stream its answer."),
        ("text/event-stream", "data: {oh\n\n", "The server sent an invalid answer."),
    ],
)
def test_invalid_answers(chat: Chat, tab: Tab, kind: str, body: str, said: str) -> None:
    chat.context.route("**/v1/chat/completions", lambda route: route.fulfill(content_type=kind, body=body))
    tab.ask("Hello")
    tab.sees(said)


def test_a_busy_server_is_retried(chat: Chat, tab: Tab) -> None:
    chat.server.reply(status=429, message="64 requests wait already", headers={"Retry-After": "1"})
    chat.server.reply("At last.")
    tab.converse("Hello", "At last.")
    assert len(chat.server.bodies) == 2
    assert tab.texts() == ["At last."]


def test_retrying_now_and_giving_up(chat: Chat, tab: Tab) -> None:
    ending: dict[str, Any] = {"status": 503, "message": "the server is ending"}
    ending["headers"] = {"Retry-After": "100"}
    chat.server.reply(**ending)
    again = chat.server.reply(**ending)
    tab.ask("Hello")
    tab.sees("The server is busy. Trying again in")
    tab.button("Try now").click()
    assert again.is_asked.wait(60)
    tab.sees("The server is busy. Trying again in")
    tab.button("Stop").click()
    tab.sees("Stopped before it began.")
    assert len(chat.server.bodies) == 2


def test_a_server_that_needs_a_key(chat: Chat) -> None:
    chat.server.key = "sk-right"
    tab = chat.tab(is_ready=False)
    key = tab.page.get_by_label("API key", exact=True)
    key.fill("sk-wrong")
    tab.button("Use this key").click()
    tab.until("document.getElementById('key').open && document.getElementById('key-text').value === ''")
    tab.sees("This server needs a valid API key.", within="#key")
    key.fill("sk-right")
    key.press("Enter")
    tab.sees("canned", within="#model")
    tab.converse("Hello")
    tab.reload()  # the tab keeps it
    tab.converse("Again")
    assert "sk-right" not in tab.run("JSON.stringify(localStorage)")
    other = chat.tab(is_ready=False)  # another tab has to ask again
    other.page.get_by_label("API key", exact=True).wait_for()


def test_a_key_that_is_needed_later(chat: Chat, tab: Tab) -> None:
    """The question is sent again automatically once a key is entered."""
    chat.server.key = "sk-new"
    tab.ask("Hello")
    tab.page.get_by_label("API key", exact=True).fill("sk-new")
    tab.button("Use this key").click()
    tab.sees("You said: Hello")
    assert tab.texts("user") == ["Hello"]


def test_a_key_that_is_not_given(chat: Chat) -> None:
    chat.server.key = "sk-right"
    tab = chat.tab(is_ready=False)
    tab.button("Not now").click()
    tab.sees("This server needs a valid API key.", within="#hint")
    tab.page.locator("#hint").get_by_role("button", name="Try again").click()
    tab.page.get_by_label("API key", exact=True).fill("sk-right")
    tab.button("Use this key").click()
    tab.sees("canned", within="#model")
    tab.sees("Enter sends", within="#hint")


def test_a_server_that_is_gone(chat: Chat, tab: Tab) -> None:
    chat.context.route("**/v1/*", lambda route: route.abort())
    chat.context.route("**/v1/chat/*", lambda route: route.abort())
    tab.ask("Hello")
    tab.sees("The server cannot be reached. Is it still running?")
    other = chat.tab(is_ready=False)
    other.sees("The server cannot be reached.", within="#hint")
    other.converse("Hello", "The server cannot be reached. Is it still running?")
    chat.context.unroute("**/v1/*")
    chat.context.unroute("**/v1/chat/*")
    other.page.locator("#thread").get_by_role("button", name="Try again").click()
    other.sees("You said: Hello")
    other.sees("canned", within="#model")
