"""A program's inside -> one file that needs nothing else: markup, styles, scripts and data in it.

The page may load nothing and run nothing but its own scripts, by its content security policy; names from the
file are data, which scripts put into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

from pteron.tools.page.report import ProgramInside
from pteron.tools.text import plain

_PARTS = files("pteron.tools.page")
_STYLE = re.compile(r'<link rel="stylesheet" href="([\w/.]+)">')
_SCRIPT = re.compile(r'<script src="([\w/.]+)"></script>')


def page_text(inside: ProgramInside) -> str:
    """The page."""
    sources: list[str] = []

    def script(match: re.Match[str]) -> str:
        sources.append(_read(match[1]))
        return f"<script>{sources[-1]}</script>"

    page = _STYLE.sub(lambda match: f"<style>{_read(match[1])}</style>", _read("page.html"))
    page = _SCRIPT.sub(script, page)
    hashes = " ".join(f"'sha256-{_digest(source)}'" for source in sources)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"
    for name, text in (
        ("policy", policy),
        ("title", html.escape(f"{inside.name} · Pteron")),
        ("data", _data(inside)),  # last: nothing in it is replaced
    ):
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _read(name: str) -> str:
    return (_PARTS / name).read_text("utf-8")


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _data(inside: ProgramInside) -> str:
    """The data as JSON that no HTML parser finds a tag in."""
    text = json.dumps(plain(inside), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
