"""Branches of a conversation in the chat page: messages that are edited, and answers that are given again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chat_fixtures import Chat, Tab

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def message(tab: Tab, text: str) -> Locator:
    return tab.page.locator(".message").filter(has_text=text)


def edit(tab: Tab, before: str, after: str) -> None:
    found = message(tab, before).first
    found.hover()
    found.get_by_role("button", name="Edit and send again").click()
    field = tab.page.get_by_label("Your message")
    assert field.input_value() == before
    field.fill(after)
    field.press("Enter")
    tab.sees(f"You said: {after}")
    tab.until_idle()


def test_answering_again(chat: Chat, tab: Tab) -> None:
    chat.server.reply("A poor answer")
    tab.converse("Ask", "A poor answer")
    chat.server.reply("A better answer")
    tab.button("Answer again").click()
    tab.sees("A better answer")
    tab.until_idle()
    assert tab.texts() == ["A better answer"]
    assert [len(body["messages"]) for body in chat.server.bodies] == [1, 1]
    tab.sees("2/2")
    tab.button("Previous branch").click()
    tab.sees("A poor answer")
    assert tab.texts() == ["A poor answer"]
    assert tab.button("Previous branch").is_disabled()
    tab.converse("And then?")
    sent = [each["content"] for each in chat.server.bodies[-1]["messages"]]
    assert sent == ["Ask", "A poor answer", "And then?"]


def test_editing_an_earlier_question(chat: Chat, tab: Tab) -> None:
    """Both branches stay, with what follows in them, over a reload too."""
    for text in ("One", "Two", "Three"):
        tab.converse(text)
    edit(tab, "Two", "Zwei")
    assert tab.texts("user") == ["One", "Zwei"]
    sent = [each["content"] for each in chat.server.bodies[-1]["messages"]]
    assert sent == ["One", "You said: One", "Zwei"]
    edit(tab, "Zwei", "Deux")
    message(tab, "Deux").first.get_by_text("3/3").wait_for()
    tab.button("Previous branch").click()
    tab.sees("2/3")
    tab.button("Previous branch").click()
    tab.sees("You said: Three")
    assert tab.texts("user") == ["One", "Two", "Three"]
    tab.reload()
    tab.sees("You said: Three")
    assert tab.texts("user") == ["One", "Two", "Three"]
    tab.button("Next branch").press("Enter")
    tab.sees("You said: Zwei")
    for text in ("Deux", "Zwei"):  # the arrows keep the focus; at the end it is the other one's
        tab.page.keyboard.press("Enter")
        tab.sees(f"You said: {text}")
    assert tab.titles() == ["One"]


def test_editing_the_first_question(tab: Tab) -> None:
    tab.converse("One")
    tab.page.press("#question", "ArrowUp")
    field = tab.page.get_by_label("Your message")
    field.fill("Eins")
    field.press("Enter")
    tab.sees("You said: Eins")
    tab.until_idle()
    tab.button("Previous branch").click()
    tab.sees("You said: One")


def test_an_empty_answer_is_not_a_branch(chat: Chat, tab: Tab) -> None:
    chat.server.reply(status=500, message="no luck")
    tab.converse("One", "No luck.")
    tab.button("Try again").click()
    tab.sees("You said: One")
    tab.until_idle()
    assert not tab.page.locator(".branches").last.is_visible()


def test_conversations_from_before_there_were_branches(chat: Chat, tab: Tab) -> None:
    tab.converse("One")
    tab.run("""() => {
        const key = Object.keys(localStorage).find((name) => name.startsWith("pteron.conversation."));
        const { leaf, dropped, tools, ...stored } = JSON.parse(localStorage.getItem(key));
        for (const message of stored.messages) delete message.parent;
        localStorage.setItem(key, JSON.stringify(stored));
    }""")
    tab.reload()
    tab.sees("You said: One")
    tab.converse("Two")
    sent = [each["content"] for each in chat.server.bodies[-1]["messages"]]
    assert sent == ["One", "You said: One", "Two"]
