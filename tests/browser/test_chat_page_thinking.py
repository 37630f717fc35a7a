"""Reasoning and tool calls in the chat page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_fixtures import Chat, Tab

OPEN = "document.querySelector('.assistant .thinking').open"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def call(index: int, **fields: str) -> dict[str, Any]:
    id = {"id": f"call_{index}"} if "name" in fields else {}
    return {"tool_calls": [{"index": index, **id, "function": fields}]}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_folds_away(chat: Chat, tab: Tab, name: str) -> None:
    reply = chat.server.reply({name: "Let me "}, {name: "**think**"}, "An ", "answer", held=True)
    tab.ask("Hard?")
    reply.release(2)
    tab.sees("Let me think", within=".thinking .text")
    assert tab.run(OPEN)
    tab.sees("Thinking", within=".thinking summary")
    reply.release(1)
    tab.sees("An")
    tab.until(f"!{OPEN}")
    tab.sees("Thought for ", within=".thinking summary")
    tab.page.locator(".thinking summary").click()
    reply.release()
    tab.until_idle()
    assert tab.run(OPEN)  # as the user left it
    assert tab.texts() == ["An answer"]
    tab.sees("4 tokens ·")
    tab.reload()
    tab.sees("Thought for ", within=".thinking summary")
    assert not tab.run(OPEN)
    tab.converse("Next")
    assert chat.server.bodies[-1]["messages"][1] == {"role": "assistant", "content": "An answer"}


def test_reasoning_that_is_stopped(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply({"reasoning": "Hm"}, "never", held=True)
    tab.ask("Hard?")
    reply.release(1)
    tab.sees("Hm", within=".thinking .text")
    tab.page.keyboard.press("Escape")
    tab.sees("Thought for ", within=".thinking summary")
    tab.sees("Stopped.")


def test_tool_calls(chat: Chat, tab: Tab) -> None:
    """Calls are shown; their results are sent as messages of the tools."""
    tab.button("Settings").click()
    tab.page.get_by_label("Tools").fill(json.dumps(TOOLS))
    tab.button("Close settings").click()
    chat.server.reply(
        "I look.",
        call(0, name="weather", arguments=""),
        call(0, arguments='{"city":'),
        call(0, arguments='"Rome"}'),
        call(1, name="time", arguments="{}"),
        finish="tool_calls",
    )
    tab.converse("Weather?", "I look.")
    assert chat.server.bodies[-1]["tools"] == TOOLS
    shown = tab.page.locator(".calls pre").all_inner_texts()
    assert shown == ['{\n  "city": "Rome"\n}', "{}"]
    tab.sees("weather", within=".calls .code-head")
    tab.page.get_by_label("Result of weather").fill("Sunny")
    tab.page.get_by_label("Result of time").fill("Noon")
    chat.server.reply("It is sunny.")
    tab.button("Send the results").click()
    tab.sees("It is sunny.")
    tab.until_idle()
    assert tab.page.get_by_label("Result of weather").count() == 0
    assert tab.texts("tool") == ["Sunny", "Noon"]
    asked, *results = chat.server.bodies[-1]["messages"][1:]
    assert (asked["role"], asked["content"]) == ("assistant", "I look.")
    assert asked["tool_calls"][0] == {
        "id": "call_0",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
    }
    assert results == [
        {"role": "tool", "tool_call_id": "call_0", "content": "Sunny"},
        {"role": "tool", "tool_call_id": "call_1", "content": "Noon"},
    ]


@pytest.mark.parametrize(("text", "said"), [("{}", "Tools must be a list."), ("[", "Tools must be JSON: ")])
def test_invalid_tools(chat: Chat, tab: Tab, text: str, said: str) -> None:
    tab.button("Settings").click()
    tab.page.get_by_label("Tools").fill(text)
    tab.sees(said, within="#settings")
    tab.converse("Hello")
    assert "tools" not in chat.server.bodies[-1]
