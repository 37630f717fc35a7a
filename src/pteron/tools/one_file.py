"""Markup, styles, scripts and data -> one page that a browser opens without anything else.

The page may load nothing and run nothing but its own scripts, by its content security policy. Names out of a
program are data, which scripts put into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def filled(page: str, title: str, data: object, scripts: Iterable[str], **parts: str) -> str:
    """A page with its `{{title}}`, `{{data}}`, `{{policy}}` and further parts in their places.

    What is put in is looked at no more, whatever a name holds; half a character, as of a file's name that is
    no UTF-8, is shown by its number.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"
    every: Mapping[str, str] = {
        "policy": policy,
        "title": html.escape(title),
        "data": _data(data),
        **parts,
    }
    text = _PLACE.sub(lambda place: every[place[1]], page)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(content: object) -> str:
    """Content as JSON in which no HTML parser finds a tag."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
