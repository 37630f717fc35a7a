"""Files in the chat page: attached to a message, and conversations that are exported and imported."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from chat_fixtures import Chat, Tab


def file(name: str, content: bytes, kind: str = "text/plain") -> Any:
    return {"name": name, "mimeType": kind, "buffer": content}


def picture(width: int, height: int) -> bytes:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    written = io.BytesIO()
    image.new("RGB", (width, height), (200, 30, 30)).save(written, "PNG")
    return written.getvalue()


def attach(tab: Tab, *files: Any) -> None:
    tab.page.locator("#files").set_input_files(list(files))


def test_a_text_file(chat: Chat, tab: Tab) -> None:
    attach(tab, file("notes.md", b"One\n```\ntwo\n```\n"), file("empty.txt", b""))
    tab.sees("notes.md", within="#attached")
    tab.sees("16 B", within="#attached")
    tab.button("Remove empty.txt").click()
    tab.converse("Shorten it", "You said:")
    assert chat.server.bodies[-1]["messages"] == [
        {"role": "user", "content": "notes.md:\n\n````\nOne\n```\ntwo\n```\n````\n\nShorten it"}
    ]
    tab.sees("notes.md", within=".message.user .chip")
    assert tab.texts("user") == ["Shorten it"]
    assert tab.page.locator("#attached .chip").count() == 0
    tab.page.press("#question", "ArrowUp")  # an edited message keeps its files
    tab.page.get_by_label("Your message").fill("Explain it")
    tab.page.get_by_label("Your message").press("Enter")
    tab.sees("Explain it")
    tab.until_idle()
    assert chat.server.bodies[-1]["messages"][0]["content"].endswith("````\n\nExplain it")
    tab.reload()
    tab.sees("notes.md", within=".message.user .chip")


def test_a_file_alone(chat: Chat, tab: Tab) -> None:
    assert tab.page.locator("#send").is_disabled()
    attach(tab, file("notes.txt", b"Text"))
    tab.button("Send").click()
    tab.sees("You said:")
    assert chat.server.bodies[-1]["messages"][0]["content"] == "notes.txt:\n\n```\nText\n```"
    tab.sees("notes.txt", within="#conversations")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (file("big.txt", b"x" * 256_001), "big.txt has 256.0 kB; a text file may have 256.0 kB."),
        (file("data.bin", b"\xff\xfe\x00"), "data.bin is neither a text in UTF-8 nor a picture."),
        (file("zeros", b"a\0b"), "zeros is neither a text in UTF-8 nor a picture."),
        (file("cat.png", b"", "image/png"), "canned does not take pictures."),
    ],
    ids=["large", "binary", "zeros", "picture"],
)
def test_files_that_cannot_be_attached(chat: Chat, tab: Tab, given: Any, said: str) -> None:
    attach(tab, given)
    tab.sees(said, within="#notices")
    assert tab.page.locator("#attached .chip").count() == 0


@pytest.mark.parametrize("modalities", [["text", "image"], None])
def test_a_picture(chat: Chat, modalities: list[str] | None) -> None:
    """It is made small, and sent as a part of its own."""
    chat.server.modalities = modalities
    tab = chat.tab()
    attach(tab, file("cat.png", picture(2048, 1000), "image/png"))
    tab.sees("cat.png", within="#attached")
    tab.converse("What is it?", "You said:")
    [sent] = chat.server.bodies[-1]["messages"]
    image, text = sent["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert image["type"] == "image_url"
    assert image["image_url"]["url"].startswith("data:image/jpeg;base64,")
    tab.until("document.querySelector('.message.user .chip img').naturalWidth === 1024")
    assert tab.run("document.querySelector('.message.user .chip img').naturalHeight") == 500
    attach(tab, file("cat.png", b"no picture", "image/png"))
    tab.sees("cat.png is not a picture that this browser can read.", within="#notices")


@pytest.mark.parametrize(
    ("event", "texts", "is_attached"),
    [
        ("paste", ["text/html"], True),
        ("drop", ["text/plain"], True),
        ("paste", ["text/plain", "text/html"], False),  # of an office program: a text, with a picture of it
    ],
)
def test_pasting_and_dropping(tab: Tab, event: str, texts: list[str], is_attached: bool) -> None:
    is_left = tab.run(f"""() => {{
        const transfer = new DataTransfer();
        for (const type of {texts}) transfer.setData(type, "text");
        transfer.items.add(new File(["Text"], "note.txt", {{ type: "text/plain" }}));
        const kind = {{ paste: ClipboardEvent, drop: DragEvent }}["{event}"];
        const given = {{ clipboardData: transfer, dataTransfer: transfer, bubbles: true, cancelable: true }};
        return document.getElementById("question").dispatchEvent(new kind("{event}", given));
    }}""")
    assert is_left != is_attached
    if is_attached:
        tab.sees("note.txt", within="#attached")


def test_a_file_of_another_conversation(tab: Tab) -> None:
    """It is attached where it was chosen, though another conversation is shown once it is read."""
    tab.converse("One")
    tab.run("""() => {
        const read = File.prototype.arrayBuffer;
        const chosen = new Promise((done) => (window.letRead = done));
        File.prototype.arrayBuffer = async function () {
            await chosen;
            return read.call(this);
        };
    }""")
    attach(tab, file("notes.txt", b"Text"))
    tab.button("New conversation").click()
    tab.run("letRead()")
    tab.page.wait_for_timeout(200)
    assert tab.page.locator("#attached .chip").count() == 0
    tab.page.locator("#conversations a").first.click()
    tab.sees("notes.txt", within="#attached")


def test_exporting_and_importing(chat: Chat, tab: Tab, tmp_path: Path) -> None:
    chat.server.reply({"reasoning_content": "Easy."}, "A *fine* answer")
    attach(tab, file("notes.txt", b"Text"))
    tab.converse("One/two?", "A fine answer")
    tab.button("Answer again").click()
    tab.sees("You said:")
    tab.until_idle()
    tab.button("Previous branch").click()
    tab.button("Settings").click()
    with tab.page.expect_download() as markdown:
        tab.button("Export as Markdown").click()
    assert markdown.value.suggested_filename == "One_two?.md".replace("?", "_")
    assert Path(markdown.value.path()).read_text("utf-8") == (
        "# One/two?\n\n## You\n\nnotes.txt:\n\n```\nText\n```\n\nOne/two?\n\n## Answer (canned)\n\n"
        "<details><summary>Thinking</summary>\n\nEasy.\n\n</details>\n\nA *fine* answer\n"
    )
    with tab.page.expect_download() as exported:
        tab.button("Export as JSON").click()
    path = tmp_path / "conversation.json"
    exported.value.save_as(path)
    tab.run("localStorage.clear()")
    tab.page.goto(chat.server.address)
    tab.button("Settings").click()
    tab.page.get_by_label("A conversation").set_input_files(path)
    tab.sees("A fine answer")
    tab.button("Next branch").click()
    tab.sees("You said:")
    assert tab.titles() == ["One/two?"]


@pytest.mark.parametrize("change", [{"version": 2}, {"title": 7}, {"messages": [{"id": "a", "text": "x"}]}])
def test_importing_something_else(chat: Chat, tab: Tab, change: dict[str, Any]) -> None:
    content = {"version": 1, "messages": [], **change}
    tab.button("Settings").click()
    tab.page.get_by_label("A conversation").set_input_files(
        file("other.json", json.dumps(content).encode(), "application/json")
    )
    tab.sees("other.json is not a conversation that was exported here.", within="#notices")
    assert tab.titles() == []
