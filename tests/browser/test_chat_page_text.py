"""Texts on the chat page: hostile ones stay text, Markdown becomes elements, code is coloured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chat_fixtures import Chat, Tab, chatting

if TYPE_CHECKING:
    from canned_server import Canned
    from playwright.sync_api import Browser

HOSTILE = [
    "<img src=x onerror=\"document.title='hacked'\">",
    "</script><script>document.title='hacked'</script>",
    "<b>bold</b> &lt;i&gt; &amp;",
    "<!-- <style>*{display:none}</style>",
    "\u2028\u2029\u0000\ufeff\u202e\U0001f600",
]


@pytest.fixture(scope="module")
def still(browser: Browser, canned_address: tuple[Canned, str]) -> Iterator[Tab]:
    """A tab that only lends its modules to tests."""
    with chatting(browser, *canned_address) as chat:
        yield chat.tab()


def written(tab: Tab, text: str) -> str:
    """The elements that a Markdown text becomes, without attributes' noise."""
    script = """async (text) => {
        const { renderMarkdown } = await import("/page/main.js");
        const place = document.createElement("div");
        renderMarkdown(place, text);
        for (const head of place.querySelectorAll(".code-head")) head.remove();
        return place.innerHTML;
    }"""
    html: str = tab.page.evaluate(script, text)
    html = re.sub(r' (class|tabindex|target|rel|data-language)="[^"]*"', "", html)
    return re.sub(r"\n(?=<)|(?<=>)\n", "", html)


def plain(text: str) -> str:
    """Markdown replaces a null character by U+FFFD, as its standard says."""
    return re.sub("[\u0000\ufffd\ufeff]", "", text)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_is_text(chat: Chat, tab: Tab, text: str) -> None:
    chat.server.reply(
        *text, "\n\n```html\n", text, "\n```\n\n| a |\n|---|\n| ", text, " |\n\n- **", text, "**"
    )
    tab.ask(text)
    tab.sees("tokens ·")
    shown = tab.run("[...document.querySelectorAll('.message')].map((message) => message.textContent)")
    for part in shown:
        assert plain(text)[:12] in plain(part)
    code = tab.run("document.querySelector('#thread pre code').textContent")
    assert plain(code).startswith(plain(text)[:3])
    assert tab.run("document.querySelectorAll('#thread :is(img, script, style, b, i)').length") == 0
    assert tab.run("document.title") != "hacked"
    tab.reload()
    script = "document.querySelectorAll(':is(#thread, #conversations) :is(img, script, style, b, i)').length"
    assert tab.run(script) == 0


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Plain\nlines", "<p>Plain\nlines</p>"),
        ("**bold** *it* _it_ ~~no~~", "<p><strong>bold</strong> <em>it</em> <em>it</em> <del>no</del></p>"),
        (
            "***both*** and **a *b* c**",
            "<p><em><strong>both</strong></em> and <strong>a <em>b</em> c</strong></p>",
        ),
        ("**open and *open", "<p>**open and *open</p>"),
        ("snake_case_name 2 * 3 * 4", "<p>snake_case_name 2 * 3 * 4</p>"),
        ("`a*b*` ``x`y`` `open", "<p><code>a*b*</code> <code>x`y</code> `open</p>"),
        (r"\*not\* \`code\`", "<p>*not* `code`</p>"),
        ("# One\n### Three #", "<h3>One</h3><h5>Three</h5>"),
        ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("1. a\n\n   more\n2. b", "<ol><li><p>a</p><p>more</p></li><li><p>b</p></li></ol>"),
        ("> said\n> so\n\nnot", "<blockquote><p>said\nso</p></blockquote><p>not</p>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("```py\nx = 1\n\n  y\n```\nz", "<div><pre><code>x = 1\n\n  y</code></pre></div><p>z</p>"),
        ("```\nnever closed", "<div><pre><code>never closed</code></pre></div>"),
        (
            "[a](https://b.c/d) https://e.f.",
            '<p><a href="https://b.c/d">a</a> <a href="https://e.f">https://e.f</a>.</p>',
        ),
        ("[a](javascript:alert(1)) ![p](data:x)", "<p>[a](javascript:alert(1)) ![p](data:x)</p>"),
        ("![a picture](https://b.c/d.png)", '<p><a href="https://b.c/d.png">a picture</a></p>'),
        (
            "| a | b |\n|---|--:|\n| 1 | `2` |",
            "<div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
            "<tbody><tr><td>1</td><td><code>2</code></td></tr></tbody></table></div>",
        ),
        ("a | b\nno table", "<p>a | b\nno table</p>"),
        ("a  \nb\\\nc &lt;", "<p>a\nb\nc &lt;</p>"),
        ("- x\n\n  ```js\n  1\n  ```", "<ul><li><p>x</p><div><pre><code>1</code></pre></div></li></ul>"),
        ("<u>x</u> & y", "<p>&lt;u&gt;x&lt;/u&gt; &amp; y</p>"),
    ],
    ids=lambda text: text[:14] if not text.startswith("<") else "",
)
def test_markdown(still: Tab, text: str, html: str) -> None:
    assert written(still, text) == html


def test_growing_text_renders_like_whole_text(still: Tab) -> None:
    text = "# H\n\nA *b* `c`\n\n```py\nx = '**'\n```\n\n1. a\n   - b\n\n| a |\n|---|\n| 1 |\n\n> q\n\nend [l](http://m.n)"
    script = """async (text) => {
        const { renderMarkdown } = await import("/page/main.js");
        const grown = document.createElement("div"), whole = document.createElement("div");
        const wrong = [];
        for (let end = 0; end <= text.length; end++) {
            renderMarkdown(grown, text.slice(0, end));
            whole.replaceChildren();
            const fresh = whole.cloneNode();
            renderMarkdown(fresh, text.slice(0, end));
            if (grown.innerHTML !== fresh.innerHTML) wrong.push(text.slice(0, end));
        }
        return wrong;
    }"""
    assert still.page.evaluate(script, text) == []


@pytest.mark.parametrize(
    "unit",
    [*"*`[| \\", "**a ", "[a](", "> ", "- ", "# ", "```\n", "|-", "~~", "_a", "1. a\n", "| a\n|--\n"],
)
def test_rendering_takes_linear_time(still: Tab, unit: str) -> None:
    """250,000 characters: quadratic time would be hours."""
    script = """async (unit) => {
        const { renderMarkdown } = await import("/page/main.js");
        const text = unit.repeat(Math.ceil(250_000 / unit.length));
        const texts = [text, `x${text}x`, `${text}\\n|--`, `# a${text}b`, `- ${text}`];
        for (const each of texts) renderMarkdown(document.createElement("div"), each);
        return true;
    }"""
    assert still.page.evaluate(script, unit)


def test_code_is_coloured_once_it_is_whole(chat: Chat, tab: Tab) -> None:
    reply = chat.server.reply(*"```py\nx = 'a'\n", "```\n", "\n```nonsense\n<i>\n```", held=True)
    tab.ask("Code")
    reply.release(13)
    tab.sees("x = 'a'")
    assert tab.page.locator("pre span").count() == 0
    reply.release()
    tab.until_idle()
    tab.page.locator("pre span.hljs-string").wait_for()
    assert tab.page.locator("pre").all_inner_texts() == ["x = 'a'", "<i>"]
    assert tab.page.locator("pre").last.locator("*").count() == 1
    tab.reload()
    tab.page.locator("pre span.hljs-string").wait_for()


def test_a_huge_answer(chat: Chat, tab: Tab) -> None:
    lines = [f"line {index} of a long program\n" for index in range(5000)]
    chat.server.reply("```py\n", *("".join(lines[start : start + 50]) for start in range(0, 5000, 50)), "```")
    tab.ask("Much")
    tab.until_idle()
    assert tab.run("document.querySelector('pre code').textContent.split('\\n').length") == 5000
    assert tab.run("document.querySelector('.code').getBoundingClientRect().height < innerHeight")
