"""A page that web/ built, and data -> one HTML file that needs no other file.

The content security policy of the page allows only its own script and loads nothing. Names out of a program
are JSON data; the script inserts them as text.
"""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files

_PLACE = re.compile(r"\{\{(title|data)\}\}")


def build_page(package: str, title: str, data: object) -> str:
    """The `page.html` of a package with `{{title}}` and `{{data}}` filled in. Lone surrogates, as in a file
    name that is not UTF-8, are escaped."""
    markup = (files(package) / "page.html").read_text("utf-8")
    parts = {"title": html.escape(title), "data": _json(data)}
    page = _PLACE.sub(lambda place: parts[place[1]], markup)  # one pass: data may contain "{{title}}"
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _json(content: object) -> str:
    """JSON in which an HTML parser finds no tag."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
