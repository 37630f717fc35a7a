"""A page's markup, styles and scripts, and data -> one HTML file that needs no other file.

The content security policy of the page allows only its own scripts and loads nothing. Names out of a program
are JSON data; scripts insert them as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

_STYLE = re.compile(r'<link rel="stylesheet" href="([\w/.]+)">')
_SCRIPT = re.compile(r'<script src="([\w/.]+)"></script>')
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def build_page(package: str, title: str, data: object) -> str:
    """The `page.html` of a package with its styles and scripts inlined, and `{{title}}`, `{{data}}` and
    `{{policy}}` filled in. Lone surrogates, as in a file name that is not UTF-8, are escaped."""
    folder = files(package)

    def read(name: str) -> str:
        return (folder / name).read_text("utf-8")

    markup = read("page.html")
    digests = [hashlib.sha256(read(name).encode()).digest() for name in _SCRIPT.findall(markup)]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    parts = {
        "policy": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:",
        "title": html.escape(title),
        "data": _json(data),
    }
    markup = _STYLE.sub(lambda match: f"<style>{read(match[1])}</style>", markup)
    markup = _SCRIPT.sub(lambda match: f"<script>{read(match[1])}</script>", markup)
    page = _PLACE.sub(lambda place: parts[place[1]], markup)  # one pass: data may contain "{{title}}"
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _json(content: object) -> str:
    """JSON in which an HTML parser finds no tag."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
