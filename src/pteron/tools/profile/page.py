"""A profile -> one file that a browser opens without anything else: markup, styles, a script, the data."""

from __future__ import annotations

import json
from importlib.resources import files

from pteron.tools.one_file import filled
from pteron.tools.profile.lines import TIMINGS, notes
from pteron.tools.profile.report import Profile
from pteron.tools.text import json_text

_PARTS = files("pteron.tools.profile")


def page_text(profile: Profile) -> str:
    """The page."""
    script = _read("page.js")
    texts = {"timing_text": TIMINGS[profile.timing], "notes": list(notes(profile))}
    data = json.loads(json_text(profile)) | texts
    title = f"{profile.program}, {profile.what} · Pteron"
    return filled(_read("page.html"), title, data, [script], style=_read("page.css"), script=script)


def _read(name: str) -> str:
    return (_PARTS / name).read_text("utf-8")
