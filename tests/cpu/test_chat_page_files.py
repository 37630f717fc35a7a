"""The chat page as files: what is served, with which headers, and what the files name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed (extra `serve`)")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from pteron.serving.page import POLICY, mount, parts

WEB = Path(__file__).parents[2] / "web"
SOURCES = sorted([*(WEB / "pages" / "chat").glob("*.ts"), *(WEB / "shared").glob("*.ts")])


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    mount(app)
    return TestClient(app)


def text(name: str) -> str:
    return parts()[name].content.decode()


def addresses(page: str) -> list[str]:
    """What a page loads."""
    found = re.findall(r'\s(?:src|href)="([^"]*)"', page)
    assert len(found) > 2
    return found


def test_the_page_and_its_parts_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"] == POLICY
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.content == parts()["index.html"].content
    for name, part in parts().items():
        answer = client.get(f"/page/{name}")
        assert (answer.status_code, answer.content) == (200, part.content)
        assert answer.headers["Content-Type"] == part.media_type
        assert answer.headers["Content-Security-Policy"] == POLICY


def test_what_did_not_change_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/page/main.js").headers["ETag"]
    for given in (tag, f'"other", W/{tag}'):
        again = client.get("/page/main.js", headers={"If-None-Match": given})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    head = client.head("/")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "none.js",
        "mounting.py",
        "__init__.py",
        "../mounting.py",
        "..%2f..%2f__init__.py",
        "licenses.txt",
        "/etc/passwd",
    ],
)
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_the_page_keeps_its_own_policy() -> None:
    """The markup has no inline script or style. All addresses are the page's own and relative, so it also
    works below a URL prefix."""
    page = text("index.html")
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script[^>]*>\s*[^<\s]", page)
    loaded = {address.removeprefix("page/") for address in addresses(page)} | {"index.html"}
    for name in parts():
        if name.endswith(".css"):
            assert not re.search(r"url\(|@import", text(name))
        elif name.endswith(".js"):
            assert not re.search(r"\beval\(|new Function", text(name))
            loaded.update(re.findall(r'(?:from|import)\s*\(?"\./([^"]+)"', text(name)))
    assert loaded == set(parts())


def test_sources_insert_no_markup_and_ask_the_server_only() -> None:
    for path in SOURCES:
        source = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", source), path
        fetched = re.findall(r'(?:fetch|ask)\("([^"]+)"', source)
        assert all(re.match(r"v1/", address) for address in fetched)


def test_all_that_scripts_name_is_there() -> None:
    ids = re.findall(r'\sid="([^"]*)"', text("index.html"))
    assert len(set(ids)) == len(ids) > 20
    named = [
        id for path in SOURCES for id in re.findall(r'byId(?:<\w+>)?\("([\w-]+)"\)', path.read_text("utf-8"))
    ]
    assert len(named) > 20
    assert set(named) <= set(ids)


def test_the_page_is_small() -> None:
    """Of code, what a page without code blocks loads."""
    assert len(parts()["main.js"].content) < 150_000
    assert len(parts()["highlight.js"].content) < 80_000
