"""What commands print on a terminal and in a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from terminal_fixtures import on_terminal, seen

from pteron.tools.text import json_text

LINES = """
from pteron.cli.terminal import print_report
from pteron.tools.text import Line, columns
rows = [["first", "1"], ["second", "word " * 20 + "≤"]]
print_report([Line("a title", "title"), *columns(rows, indent=2), "end"])
"""
PLAIN = "a title\n  first   1\n  second  " + "word " * 20 + "≤\nend\n"


def in_pipe(code: str, **environment: str) -> str:
    settings = {**os.environ, "PYTHONUTF8": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=settings, check=True)
    return done.stdout.decode()


def test_a_pipe_gets_the_lines() -> None:
    assert in_pipe(LINES) == PLAIN
    assert "\x1b[" in in_pipe(LINES, FORCE_COLOR="1")


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_gets_colour_and_no_line_that_is_too_long(width: int) -> None:
    text = on_terminal(LINES, width)
    assert "\x1b[1ma title" in text
    assert "\x1b[36msecond" in text
    lines = seen(text).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1] == "  first   1"
    assert lines[3].startswith("          word")  # what is folded stays in its column
    assert " ".join(seen(text).split()) == " ".join(PLAIN.split())


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_terminals_without_colour(environment: dict[str, str]) -> None:
    text = on_terminal(LINES, 80, **environment)
    assert not re.search(r"\x1b\[[0-9;]*3\d", text)  # NO_COLOR leaves bold text bold
    assert " ".join(seen(text).split()) == " ".join(PLAIN.split())


def test_errors_are_red() -> None:
    code = "from pteron.cli.terminal import print_error; print_error('it is [bold] late')"
    assert seen(on_terminal(code, 20)) == "pteron: it is [bold] late\n"
    assert "\x1b[1;31mpteron:" in on_terminal(code, 20)


def test_json_has_no_numbers_that_json_lacks() -> None:
    assert json_text({"a": float("inf"), "b": [1.5, float("nan")], "c": "≤"}) == (
        '{\n  "a": null,\n  "b": [\n    1.5,\n    null\n  ],\n  "c": "\\u2264"\n}'
    )


HOSTILE = """
from pteron.cli.terminal import print_error, print_note, print_report
from pteron.tools.text import columns
name = "\\x1b]0;owned\\x07\\x9b31m\\nruns here"
print_report([name, *columns([["operator", name]])])
print_error(name)
print_note(name)
"""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_control_characters_in_names_are_escaped(is_terminal: bool) -> None:
    text = seen(on_terminal(HOSTILE, 200)) if is_terminal else in_pipe(HOSTILE)
    shown = r"\x1b]0;owned\x07\x9b31m\x0aruns here"
    assert not set(text) & {"\x1b", "\x07", "\x9b"}
    expected = [shown, f"operator  {shown}", f"pteron: {shown}", shown]
    assert text.splitlines() == (expected if is_terminal else expected[:2])


def test_control_characters_in_text_are_escaped() -> None:
    code = """
from pteron.cli.terminal import print_piece
for piece in ("once\\n", "\\tupon", "\\x1b]0;owned\\x07", " ©\\n"):
    print_piece(piece)
"""
    assert on_terminal(code, 80).expandtabs() == "once\n        upon\\x1b]0;owned\\x07 ©\n"
    assert in_pipe(code) == "once\n\tupon\x1b]0;owned\x07 ©\n"


def test_progress_shows_brackets_in_names() -> None:
    code = """
import time
from pteron.cli import progress
progress._BAR_DELAY = 0.0
with progress.show_progress() as update:
    time.sleep(0.2)
    update("calling [/bold] \\x1b]0;owned\\x07", 1, 2)
    time.sleep(0.4)
"""
    text = on_terminal(code, 100)
    assert r"calling [/bold] \x1b]0;owned\x07" in text
    assert "Traceback" not in text
