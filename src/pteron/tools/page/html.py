"""A program's inside -> one file that needs nothing else: markup, styles, scripts and data in it."""

from __future__ import annotations

import re
from importlib.resources import files

from pteron.tools.one_file import filled
from pteron.tools.page.report import ProgramInside
from pteron.tools.text import plain

_PARTS = files("pteron.tools.page")
_STYLE = re.compile(r'<link rel="stylesheet" href="([\w/.]+)">')
_SCRIPT = re.compile(r'<script src="([\w/.]+)"></script>')


def page_text(inside: ProgramInside) -> str:
    """The page."""
    markup = _read("page.html")
    scripts = [_read(name) for name in _SCRIPT.findall(markup)]
    page = _STYLE.sub(lambda match: f"<style>{_read(match[1])}</style>", markup)
    page = _SCRIPT.sub(lambda match: f"<script>{_read(match[1])}</script>", page)
    return filled(page, f"{inside.name} · Pteron", plain(inside), scripts)


def _read(name: str) -> str:
    return (_PARTS / name).read_text("utf-8")
