"""What commands print on a terminal and in a pipe."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminal_fixtures import on_terminal, seen

from pteron.cli import COMMANDS, main
from pteron.cli.terminal import WordWrap, device_notes, prepare_streams
from pteron.tools.text import Line, columns, html_text, json_text

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


STORY = "Once upon a time, there was   a girl.\n\n  She said: incomprehensibilities, again and again\n"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines_break_between_words(size: int) -> None:
    """Wherever the pieces end. A word that is longer than a line has a line of its own."""
    wrap = WordWrap(16)
    pieces = [STORY[at : at + size] for at in range(0, len(STORY), size)]
    text = "".join(map(wrap.add, pieces)) + wrap.end()
    assert text.splitlines() == [
        *("Once upon a", "time, there was", "a girl.", "", "  She said:"),
        *("incomprehensibilities,", "again and again"),
    ]
    assert WordWrap(math.inf).add(STORY) == STORY


def test_wide_characters_are_printed_at_once() -> None:
    """Chinese has no spaces: a text would wait for its end."""
    wrap = WordWrap(7)
    assert [wrap.add(piece) for piece in ("从前", "有座山里", "a b")] == ["从前", "有\n座山里", "a"]


def test_notes_of_devices_are_shown_once() -> None:
    log, outer, inner = logging.getLogger("pteron.gpu.some_module"), list[str](), list[str]()
    before, level = logging.getLogger("pteron.gpu").handlers, logging.getLogger("pteron.gpu").level
    with device_notes(outer.append):
        log.info("slow")
        with device_notes(inner.append):
            log.info("slow")
        log.info("slow")
        log.info("slower")
    log.info("nobody sees this")
    assert (outer, inner) == (["slow", "slower"], ["slow"])
    assert logging.getLogger("pteron.gpu").handlers == before
    assert logging.getLogger("pteron.gpu").level == level


def test_a_notebook_gets_tables_and_styles() -> None:
    rows = [["<b>", Line("departs", "bad")], ["second", "2"]]
    shown = html_text([Line("a & b", "title"), "", *columns(rows, align="<>"), "end"])
    assert '<div style="font-weight:bold">a &amp; b</div><br>' in shown
    assert '<tr><td style="text-align:left">&lt;b&gt;</td>' in shown
    assert '<td style="text-align:right;color:#cf222e">departs</td>' in shown
    assert shown.count("<table") == 1
    assert shown.endswith("</table><div>end</div></div>")


def test_json_has_no_numbers_that_json_lacks() -> None:
    assert json_text({"a": float("inf"), "b": [1.5, float("nan")], "c": "≤"}) == (
        '{\n  "a": null,\n  "b": [\n    1.5,\n    null\n  ],\n  "c": "\\u2264"\n}'
    )


HOSTILE = """
from pteron.cli.terminal import print_error, print_note, print_report
from pteron.tools.text import columns
name = "\\x1b]0;owned\\x07\\x9b31m\\x7f\\nruns here"
print_report([name, *columns([["operator", name]])])
print_error(name)
print_note(name)
"""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_control_characters_in_names_are_escaped(is_terminal: bool) -> None:
    text = seen(on_terminal(HOSTILE, 200)) if is_terminal else in_pipe(HOSTILE)
    shown = r"\x1b]0;owned\x07\x9b31m\x7f\x0aruns here"
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


# Streams that are closed, full or of another encoding --------------------------------------------


# As on a machine whose locale is not UTF-8; Python is not to help by choosing UTF-8 itself.
FOREIGN = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


def pteron(
    *arguments: str, encoding: str | None = None, redirected: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in its own process, with its streams redirected by a shell."""
    environment = {**os.environ, **FOREIGN, **({"PYTHONIOENCODING": encoding} if encoding else {})}
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "pteron", *arguments]
    if redirected:
        command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command]
    return subprocess.run(command, capture_output=True, env=environment)


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "mlp.pte"]], ids=lambda words: words[0])
def test_a_full_disk(arguments: list[str], programs: Path) -> None:
    given = [str(programs / word) if word.endswith(".pte") else word for word in arguments]
    done = pteron(*given, redirected="> /dev/full")
    assert done.returncode == 1
    assert done.stderr == b"pteron: No space left on device\n"


@pytest.mark.parametrize("redirected", [">&- 2>&- <&-", ">&- 2> /dev/full"])
def test_streams_that_are_closed(redirected: str, programs: Path) -> None:
    done = pteron("inspect", str(programs / "mlp.pte"), redirected=redirected)
    assert (done.returncode, done.stderr) == (0, b"")
    failed = pteron("inspect", "nowhere.pte", redirected=redirected)
    assert failed.returncode == 1
    assert b"Traceback" not in failed.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_characters_that_an_encoding_lacks(encoding: str, programs: Path) -> None:
    done = pteron("inspect", str(programs / "mlp_dynamic.pte"), encoding=encoding)
    assert done.returncode == 0
    sign = "≤" if encoding == "cp437" else "<="
    assert f"forward(f32[{sign}17, 7])" in done.stdout.decode(encoding)


def test_ascii_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", write_through=True))
    prepare_streams()
    sys.stdout.write("5 µs ≤ 2\N{MULTIPLICATION SIGN}3 … größe 😀")
    assert written.getvalue() == rb"5 us <= 2x3 ... gr\xf6\xdfe \U0001f600"


def test_help_in_a_foreign_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252", write_through=True))
        prepare_streams()
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert written.getvalue().startswith(b"usage: pteron")


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        (["run", "x.pte", "--seed", "-1"], "an integer from 0 to 2147483647, not '-1'"),
        (["demo", "--seed", "2147483648"], "an integer from 0 to 2147483647, not '2147483648'"),
        (["demo", "--seed", "x"], "an integer from 0 to 2147483647, not 'x'"),
        (["run", "x.pte", "--repeat=-1"], "an integer of at least 0, not '-1'"),
        (["profile", "x.pte", "--runs", "0"], "an integer of at least 1, not '0'"),
        (["generate", "x", "--top-p", "1.1"], "a number from 0 to 1, not '1.1'"),
        (["generate", "x", "--temperature", "nan"], "a number of at least 0, not 'nan'"),
    ],
)
def test_seeds_and_counts_are_checked(
    arguments: list[str], bounds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"expected {bounds}" in capsys.readouterr().err


PROMPT = """
import time
from types import SimpleNamespace
from pteron.cli import llm_arguments, progress
from pteron.llm import Piece
from pteron.llm.output import Statistics
progress._BAR_DELAY = progress._WATCH_INTERVAL = 0.05
llm = SimpleNamespace(statistics=Statistics(9, read_tokens=9))  # of the answer before

def pieces():
    time.sleep(0.3)
    llm.statistics = Statistics(1000, read_tokens=250)
    time.sleep(1.5)
    yield Piece(1, "Hello.", 0.0)

llm_arguments.print_stream(llm, pieces())
"""


def test_reading_a_prompt_is_shown() -> None:
    """Until the first piece comes: a bar, then how long the rest takes."""
    text = on_terminal(PROMPT, 80)
    assert "reading the prompt" in text
    assert "s left" in text
    assert seen(text.rpartition("\x1b[2K")[2]) == "Hello.\n"
    assert in_pipe(PROMPT) == "Hello.\n"
