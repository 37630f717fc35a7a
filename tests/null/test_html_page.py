"""HTML pages: names from files cannot break the markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from pteron.tools.html import build_page

PACKAGE = "pteron.tools.profile"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def content(page: str) -> object:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(
    "name", ["{{data}}", "{{policy}} {{nothing}}", "</script><b>", "</title><b>", "<!--", "\u2028"], ids=ascii
)
def test_a_name_is_a_name(name: str) -> None:
    page = build_page(PACKAGE, name, {"name": name})
    assert Tags(page).seen == Tags(build_page(PACKAGE, "plain", {})).seen
    assert content(page) == {"name": name}
    assert page.count("Content-Security-Policy") == 1


def test_names_that_are_no_text() -> None:
    """As Python reads a file's name that is not UTF-8."""
    page = build_page(PACKAGE, "\udcff.pte", {"name": "\udcff.pte"})
    assert b"<title>\\udcff.pte</title>" in page.encode()
    assert content(page) == {"name": "\udcff.pte"}
