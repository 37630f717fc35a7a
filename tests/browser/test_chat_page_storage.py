"""What the chat page stores: over reloads, during an answer, and between two tabs of one browser."""

from __future__ import annotations

from chat_fixtures import Chat, Tab


def test_a_reload_keeps_the_conversation(tab: Tab) -> None:
    tab.converse("Hello")
    tab.page.fill("#question", "Not sent yet")
    tab.reload()
    tab.sees("You said: Hello")
    assert tab.texts("user") == ["Hello"]
    assert tab.page.input_value("#question") == "Not sent yet"
    tab.sees("3 tokens ·")


def test_a_reload_in_the_middle_keeps_what_came(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply("Half ", "of it", " and the rest", held=True)
    tab.ask("Talk")
    reply.release(2)
    tab.sees("Half of it")
    tab.reload()
    tab.sees("The page was closed before the answer was complete.")
    assert tab.texts() == ["Half of it"]
    assert reply.is_left.wait(60)
    chat.server.reply("All of it")
    tab.button("Try again").click()
    tab.sees("All of it")
    tab.until_idle()
    assert tab.texts() == ["All of it"]


def test_answers_continue_in_the_background(chat: Chat, tab: Tab) -> None:
    first = chat.server.reply("one", " done", held=True)
    tab.ask("First")
    first.release(1)
    tab.sees("one")
    tab.button("New conversation").click()
    second = chat.server.reply("two", " done", held=True)
    tab.ask("Second")
    second.release(1)
    tab.sees("two")
    assert tab.page.locator("#conversations .running").count() == 2
    first.release()
    tab.until("document.querySelectorAll('#conversations .running').length === 1")
    assert tab.texts() == ["two"]
    tab.page.get_by_role("link", name="First").click()
    tab.sees("one done")
    second.release()
    tab.until("document.querySelectorAll('#conversations .running').length === 0")
    tab.page.go_back()
    tab.sees("two done")


def test_two_tabs_at_one_conversation(chat: Chat) -> None:
    """The other tab sees the answer grow, and waits with its own question."""
    left = chat.tab()
    left.converse("Hello")
    right = chat.tab(left.page.url.removeprefix(chat.server.address))
    right.sees("You said: Hello")
    reply = chat.server.reply("Growing", " up", held=True)
    left.ask("More")
    reply.release(1)
    right.sees("Growing")
    right.sees("Another tab is receiving this answer.")
    right.page.fill("#question", "Me too")
    assert right.page.locator("#send").is_disabled()
    reply.release()
    right.sees("Growing up")
    right.until("!document.getElementById('send').disabled")
    right.page.press("#question", "Enter")
    left.sees("You said: Me too")
    assert left.texts("user") == right.texts("user") == ["Hello", "More", "Me too"]


def test_a_conversation_that_another_tab_deletes(chat: Chat) -> None:
    """The running answer is dropped with its conversation; other conversations stay."""
    left, right = chat.tab(), chat.tab()
    right.converse("Keep")
    reply = chat.server.reply("On", " and on", held=True)
    left.ask("Drop")
    reply.release(1)
    left.sees("On")
    right.sees("Drop", within="#conversations")
    right.page.get_by_role("link", name="Drop").hover()
    right.button("Delete Drop").click()
    left.sees("New conversation", within="h1")
    assert left.titles() == ["Keep"]
    assert reply.is_left.wait(60)
    right.reload()
    assert right.titles() == ["Keep"]


def test_a_tab_that_was_killed(chat: Chat) -> None:
    """A killed process sends no event: its answer counts as ended after a while."""
    tab = chat.tab()
    tab.converse("Hello")
    tab.run("""() => {
        const key = Object.keys(localStorage).find((name) => name.startsWith("pteron.conversation."));
        const stored = JSON.parse(localStorage.getItem(key));
        Object.assign(stored.messages.at(-1), { text: "Hal", state: "streaming", beat: Date.now() - 60_000 });
        localStorage.setItem(key, JSON.stringify(stored));
    }""")
    tab.reload()
    tab.sees("The page was closed before the answer was complete.")
    tab.button("Try again").click()
    tab.sees("You said: Hello")


def test_storage_that_is_full(chat: Chat, tab: Tab) -> None:
    tab.run("""() => {
        let size = 1 << 22;
        for (let index = 0; size > 8; index++) {
            try { localStorage.setItem(`filler.${index}`, "x".repeat(size)); } catch { size >>= 1; }
        }
    }""")
    tab.ask("Hello")
    tab.sees("The browser's storage is full", within="#notices")
    tab.sees("You said: Hello")
    tab.until_idle()
    tab.ask("Still there?")
    tab.sees("You said: Still there?")
    assert chat.server.bodies[-1]["messages"][0]["content"] == "Hello"


def test_invalid_stored_data(chat: Chat) -> None:
    """Data of another program or of an older page is ignored."""
    tab = chat.tab()
    tab.run("""() => {
        const texts = [
            "{", "null", "7", '{"version":1}', '{"version":99,"messages":[]}',
            '{"version":1,"messages":[null,{"text":1}]}',
        ];
        texts.forEach((text, index) => localStorage.setItem(`pteron.conversation.odd${index}`, text));
        localStorage.setItem("pteron.theme", "<b>");
    }""")
    tab.reload()
    assert tab.titles() == ["New conversation"]  # the last one: its messages are invalid
    tab.ask("Hello")
    tab.sees("You said: Hello")
    assert tab.run("localStorage.getItem('pteron.conversation.odd0')") == "{"
