"""The page of `pteron serve` in a real browser, with a server whose replies the tests control."""

from __future__ import annotations

import pytest
from chat_fixtures import Chat, Tab


def test_an_answer_is_shown_as_it_comes(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply("Once ", "upon ", "a time", held=True)
    tab.ask("Tell me a story")
    reply.release(1)
    tab.sees("Once")
    assert tab.texts() == ["Once"]
    reply.release(1)
    tab.sees("Once upon")
    assert tab.button("Stop").is_visible()
    reply.release()
    tab.until_idle()
    assert tab.texts() == ["Once upon a time"]
    assert tab.texts("user") == ["Tell me a story"]
    tab.sees("3 tokens ·")
    tab.sees("first after")
    tab.sees("7 of 2,048 tokens of context", within="#context")  # four words asked, three pieces answered
    assert tab.titles() == ["Tell me a story"]
    assert reply.body == {
        "model": "canned",
        "messages": [{"role": "user", "content": "Tell me a story"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_stopping_keeps_the_text_and_frees_the_server(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply("Some ", "of it", " and more", held=True)
    tab.ask("Talk")
    reply.release(2)
    tab.sees("Some of it")
    tab.button("Stop").click()
    tab.until_idle()
    assert reply.is_left.wait(60)
    tab.sees("Stopped.")
    assert tab.texts() == ["Some of it"]
    chat.server.reply("Fine.")
    tab.ask("And now?")
    tab.sees("Fine.")


def test_escape_stops_too(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply("Endless", held=True)
    tab.ask("Talk")
    assert reply.is_asked.wait(60)
    tab.page.keyboard.press("Escape")
    tab.sees("Stopped before it began.")
    assert reply.is_left.wait(60)


def test_an_abandoned_edit(tab: Tab) -> None:
    tab.converse("One")
    tab.page.press("#question", "ArrowUp")
    field = tab.page.get_by_label("Your message")
    field.fill("Other")
    field.press("Escape")
    assert tab.texts("user") == ["One"]


def test_enter_sends_and_shift_enter_does_not(chat: Chat, tab: Tab) -> None:
    field = tab.page.locator("#question")
    height = field.bounding_box()
    field.press_sequentially("One")
    for _ in range(4):
        field.press("Shift+Enter")
    field.press_sequentially("Two")
    grown = field.bounding_box()
    assert height is not None
    assert grown is not None
    assert grown["height"] > 2 * height["height"]
    field.press("Enter")
    tab.sees("You said:")
    assert chat.server.bodies[0]["messages"][0]["content"] == "One\n\n\n\nTwo"
    assert field.input_value() == ""


def test_copying_an_answer_and_its_code(chat: Chat, tab: Tab) -> None:
    chat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.server.reply("Run **this**:\n\n```sh\necho 1\n```")
    tab.ask("How?")
    tab.until_idle()
    tab.button("Copy this code").click()
    tab.button("Copied").wait_for()
    assert tab.run("navigator.clipboard.readText()") == "echo 1"
    tab.page.locator(".message.assistant .foot").get_by_label("Copy").click()
    tab.until("navigator.clipboard.readText().then((text) => text.startsWith('Run **this**:'))")


def test_settings_reach_the_server(chat: Chat, tab: Tab) -> None:
    tab.button("Settings").click()
    tab.page.get_by_label("System prompt").fill("Be brief.")
    sampling = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7, "max_tokens": 64}
    sampling |= {"presence_penalty": -0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1}
    for name, value in sampling.items():
        tab.page.get_by_label(name.replace("_", " ").capitalize(), exact=True).fill(str(value))
    tab.converse("Hello")
    body = chat.server.bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert {name: body[name] for name in sampling} == sampling
    # Another conversation has its own settings; these come back after a reload.
    tab.button("New conversation").click()
    assert tab.page.get_by_label("Temperature").input_value() == ""
    tab.converse("Other")
    assert set(chat.server.bodies[-1]) == {"model", "messages", "stream", "stream_options"}
    tab.page.get_by_role("link", name="Hello").click()
    tab.reload()
    tab.button("Settings").click()
    tab.until("document.getElementById('field-temperature').value === '0.7'")
    assert tab.page.get_by_label("System prompt").input_value() == "Be brief."
    tab.button("Use the server's defaults").click()
    tab.until("document.getElementById('field-temperature').value === ''")
    assert tab.page.get_by_label("System prompt").input_value() == "Be brief."


@pytest.mark.parametrize(
    ("label", "text", "said"),
    [
        ("Temperature", "warm", "Temperature must be a number."),
        ("Top k", "2.5", "Top k must be a whole number."),
        ("Top p", "1.5", "Top p must be 1 or less."),
        ("Max tokens", "0", "Max tokens must be 1 or more."),
    ],
)
def test_an_invalid_setting(chat: Chat, tab: Tab, label: str, text: str, said: str) -> None:
    tab.button("Settings").click()
    field = tab.page.get_by_label(label, exact=True)
    field.fill(text)
    tab.sees(said, within="#settings")
    assert field.get_attribute("aria-invalid") == "true"
    tab.ask("Hello")
    tab.sees("You said: Hello")
    assert set(chat.server.bodies[-1]) == {"model", "messages", "stream", "stream_options"}


def test_several_models(chat: Chat) -> None:
    chat.server.models = ["small", "large"]
    tab = chat.tab(is_ready=False)
    tab.page.get_by_label("Model").select_option("large")
    tab.ask("Hello")
    tab.sees("You said: Hello")
    assert chat.server.bodies[-1]["model"] == "large"


def test_screen_readers(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply("It is. ", "It was", ". Done", held=True)
    tab.ask("Ask")
    reply.release(2)
    tab.until("document.getElementById('spoken').textContent.trim() === 'It is.'")
    reply.release()
    tab.until("document.getElementById('spoken').textContent.trim().endsWith('Done')")


def test_the_keyboard_alone(tab: Tab) -> None:
    """From the field backwards to the list, with a conversation made, renamed and deleted on the way."""
    page = tab.page
    page.keyboard.type("Hello")  # the field has the focus from the start
    page.keyboard.press("Enter")
    tab.sees("You said: Hello")
    tab.until_idle()
    page.get_by_role("link", name="Hello").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("A name")
    page.keyboard.press("Enter")
    tab.sees("A name", within="#conversations")
    tab.sees("A name", within="h1")
    tab.until("document.activeElement.textContent === 'A name'")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    tab.sees("“A name” is deleted.", within="#notices")
    assert tab.titles() == []
    tab.button("Undo").click()
    tab.sees("You said: Hello")
    assert tab.titles() == ["A name"]
