"""A profile -> one file that a browser opens without anything else: markup, styles, a script, the data.

The page may load nothing and run nothing but its own script, by its content security policy. Names out of a
program are data, which the script puts into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files

from pteron.tools.profile.lines import TIMINGS, notes
from pteron.tools.profile.report import Profile
from pteron.tools.text import json_text

_PARTS = files("pteron.tools.profile")


def page_text(profile: Profile) -> str:
    """The page."""
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _read("page.html")
    for name, text in (
        ("policy", f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"),
        ("title", html.escape(f"{profile.program}, {profile.what} · Pteron")),
        ("style", _read("page.css")),
        ("script", script),
        ("data", _data(profile)),  # last: nothing in it is replaced
    ):
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _read(name: str) -> str:
    return (_PARTS / name).read_text("utf-8")


def _data(profile: Profile) -> str:
    """The profile as JSON in which no HTML parser finds a tag."""
    texts = {"timing_text": TIMINGS[profile.timing], "notes": list(notes(profile))}
    content = json.loads(json_text(profile)) | texts
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
