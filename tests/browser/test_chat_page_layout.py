"""How the chat page looks: light and dark, on a phone, and as it grows."""

from __future__ import annotations

from typing import Any

from chat_fixtures import Chat, Tab


def test_light_and_dark(chat: Chat, tab: Tab) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.page.emulate_media(color_scheme="light")
    assert tab.run(ground) == "rgb(255, 255, 255)"
    tab.page.emulate_media(color_scheme="dark")
    assert tab.run(ground) == "rgb(26, 31, 40)"
    tab.page.get_by_label("Light").check(force=True)
    assert tab.run(ground) == "rgb(255, 255, 255)"
    tab.page.emulate_media(color_scheme="light")
    tab.page.get_by_label("Dark").check(force=True)
    assert tab.run(ground) == "rgb(26, 31, 40)"
    other = chat.tab()  # the choice applies to all tabs, open ones included
    assert other.run(ground) == "rgb(26, 31, 40)"
    other.page.get_by_label("System", exact=True).check(force=True)
    tab.until(f"{ground} === 'rgb(255, 255, 255)'")
    tab.reload()
    assert tab.run(ground) == "rgb(255, 255, 255)"


def test_contrast(tab: Tab) -> None:
    """Text on its ground, by WCAG's measure: 4.5 and more in both colours."""
    script = """() => {
        const light = (name) => {
            const probe = document.body.appendChild(document.createElement("i"));
            probe.style.color = `var(--${name})`;
            const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
            probe.remove();
            const curve = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            const [r, g, b] = parts.map((part) => curve(part / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const grounds = ["paper", "ground"].map(light);
        const texts = "ink quiet accent bad keyword string number name type".split(" ").map(light);
        return texts.flatMap((text) => grounds.map((ground) => ratio(text, ground)));
    }"""
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        assert min(tab.run(script)) >= 4.5


def test_a_phone(phone: Chat) -> None:
    tab = phone.tab()
    table = f"| a | b |\n|---|---|\n| {'w' * 200} | x |"
    phone.server.reply(f"A word of {'many letters' * 40}\n\n```\n{'wide ' * 100}\n```\n\n{table}")
    long_name: Any = {"name": f"{'name' * 30}.txt", "mimeType": "text/plain", "buffer": b"text"}
    tab.page.locator("#files").set_input_files([long_name])
    tab.sees("name", within="#attached")
    tab.ask("https://example.org/" + "long" * 50)
    tab.until_idle()
    width = "Math.max(document.documentElement.scrollWidth, document.getElementById('scroll').scrollWidth)"
    overflow = f"{width} > innerWidth"
    assert not tab.run(overflow)
    side = tab.page.locator("#side")
    assert not side.is_visible()
    tab.button("Conversations").click()
    tab.until("document.getElementById('side').getBoundingClientRect().left === 0")
    assert tab.run("document.getElementById('side').contains(document.activeElement)")
    assert tab.run("document.getElementById('main').inert")
    tab.page.keyboard.press("Escape")
    side.wait_for(state="hidden")
    assert tab.run("document.activeElement.id") == "side-open"
    tab.button("Conversations").click()
    tab.button("New conversation").click()
    side.wait_for(state="hidden")
    tab.converse("Second")
    tab.button("Conversations").click()
    tab.page.locator("#conversations a").last.click()
    side.wait_for(state="hidden")
    tab.sees("A word of")
    tab.button("Settings").click()
    tab.page.get_by_label("Temperature").fill("0")
    assert not tab.run(overflow)
    tab.page.touchscreen.tap(5, 300)  # outside the settings
    tab.until("document.getElementById('settings').hidden")
    box = tab.page.locator("#send").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 640
    assert not tab.run(overflow)


def test_the_page_follows_the_answer_unless_it_is_scrolled(chat: Chat, tab: Tab) -> None:
    rest = "(scroll) => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight"
    at_end = f"({rest})(document.getElementById('scroll')) < 2"
    reply = chat.server.reply(*[f"Paragraph {index}.\n\n" for index in range(80)], held=True)
    tab.ask("Much")
    reply.release(50)
    tab.sees("Paragraph 49.")
    tab.until(at_end)
    tab.run("document.getElementById('scroll').scrollTop = 0")
    tab.button("Scroll to the end").wait_for()
    reply.release()
    tab.until_idle()
    assert tab.run("document.getElementById('scroll').scrollTop") == 0
    tab.button("Scroll to the end").click()
    tab.until(at_end)
