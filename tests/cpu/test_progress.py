"""Progress: a bar on a terminal, a line now and then elsewhere, and an estimate."""

from __future__ import annotations

import io
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal_fixtures import on_terminal, seen

from pteron.cli.progress import extrapolate, format_remaining, show_progress
from pteron.errors import FormatError
from pteron.export import progress as compile_progress
from pteron.format.program_writer import StreamedData
from pteron.format.records import DelegateGraph
from pteron.llm.network.program import BuiltProgram
from pteron.names.counted_line import CountedLine

BAR = """
import time, pteron.cli.progress as progress
progress._BAR_DELAY = {patience}
with progress.show_progress("loading") as tell:
    while {waits} and tell.__self__._drawn is None:
        time.sleep(0.01)
    time.sleep(0.5)
    tell("packing", 1, 2)
    time.sleep(0.5)
print("done")
"""


def test_the_bar_disappears_at_the_end() -> None:
    text = on_terminal(BAR.format(patience=0.1, waits=True), 80)
    assert "loading" in text
    assert "packing" in text
    assert "0:00:0" in text  # elapsed
    assert "min left" not in text  # half of it took a second
    assert text.rpartition("\x1b[2K")[2].strip() == "done"  # the bar's line is erased at the end
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l") > 0  # the cursor is back


NOTE = """
import time, pteron.cli.progress as progress
from pteron.cli.terminal import StderrAboveBar, print_note
progress._BAR_DELAY = 0.05
with progress.show_progress("loading") as tell:
    tell.__self__._timer.join()  # it has drawn the bar
    print_note("no GPU was found")
    time.sleep(0.5)
    StderrAboveBar().write("10:00:00 GET /v1/models 200\\n")
    time.sleep(0.5)
StderrAboveBar().write("10:00:01 GET /v1/models 200\\n")
"""


def test_lines_beside_a_bar() -> None:
    """Each has a line of its own: the bar is erased before it."""
    text = on_terminal(NOTE, 80)
    assert "loading" in text
    for line in ("no GPU was found", "10:00:00 GET /v1/models 200"):
        before, _, after = text.partition(line)
        assert "\x1b[2K" in before[before.rindex("loading") :]
        assert seen(after.partition("loading")[0]).startswith("\n")
    assert seen(text).endswith("10:00:01 GET /v1/models 200\n")


def test_quick_work_shows_no_bar() -> None:
    assert seen(on_terminal(BAR.format(patience=60, waits=False), 80)) == "done\n"


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    written = io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(sys, "stderr", written)
    with show_progress("loading") as tell:
        for second in range(200):
            now = float(second)
            tell("packing", second, 200)
    assert written.getvalue().splitlines() == [
        "packing: 30 of 200",
        "packing: 90 of 200",
        "packing: 150 of 200",
    ]


def test_the_time_that_is_left() -> None:
    assert format_remaining(extrapolate(10, 50, 100)) == "about 10 s left"
    assert format_remaining(extrapolate(30, 50, 118)) == "about 40 s left"
    assert format_remaining(extrapolate(300, 250, 1000)) == "about 15 min left"
    assert format_remaining(extrapolate(10, 995, 1000)) == format_remaining(math.inf) == ""
    assert extrapolate(10, 0, 100) is extrapolate(10, 3, 0) is extrapolate(0.5, 50, 100) is None
    assert (extrapolate(10, 4, 100), extrapolate(10, 5, 100)) == (None, 190)
    assert [format_remaining(seconds) for seconds in (0.9, 1, 19, 89, 91)] == [
        *("", "about 1 s left", "about 19 s left", "about 90 s left", "about 2 min left")
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without asking them")
def test_sigterm_cleans_up_an_export(tmp_path: Path) -> None:
    code = f"""
import tempfile, time
from pteron.cli.progress import export_progress
with export_progress(), tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):
    print("begun", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_weights_are_counted_while_they_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a line a second, by a clock of the test; zeros take no time and do not count."""
    now = 0.0

    def block(data: bytes) -> bytes:
        nonlocal now
        now += 0.4
        return data

    monkeypatch.setattr("time.monotonic", lambda: now)
    data = {
        "a": StreamedData(400, lambda: (block(bytes(100)) for _ in range(4))),
        "zeros": StreamedData(1000),
        "b": StreamedData(100, lambda: [block(bytes(100))]),
    }
    lines: list[str] = []
    graph = DelegateGraph("", (), (), (), (), ())
    BuiltProgram(graph, (), data, 0, 0).write(tmp_path / "x.pte", lines.append)
    assert [(str(line), line.done, line.total) for line in lines if isinstance(line, CountedLine)] == [
        ("writing the weights", 0, 500),
        ("writing the weights", 200, 500),
    ]


def test_weights_that_cannot_be_read_name_the_model(tmp_path: Path) -> None:
    def blocks() -> list[bytes]:
        raise OSError(5, "Input/output error")

    program = BuiltProgram(DelegateGraph("", (), (), (), (), ()), (), {"a": StreamedData(4, blocks)}, 0, 0)
    with pytest.raises(FormatError, match=r"the weights of tiny cannot be read: \[Errno 5\] Input/output"):
        program.write(tmp_path / "x.pte", name="tiny")


EXPORT = """
import time, pteron.cli.progress as progress
from pteron.names.counted_line import CountedLine
progress._BAR_DELAY = 0.05
with progress.export_progress() as tell:
    while not progress.bar_consoles:
        time.sleep(0.01)
    time.sleep(0.5)
    tell("tiny: 1 million parameters")
    time.sleep(0.5)
    for done in range(0, 80, 20):
        tell(CountedLine.counted("writing the weights", done, 80))
        time.sleep(0.5)
    tell("written in 2 s")
"""


@pytest.mark.long
def test_an_export_on_a_terminal() -> None:
    """One line with the current task and the time left, then the notes."""
    text = on_terminal(EXPORT, 100)
    assert text.index("reading the checkpoint") < text.index("writing the weights")
    assert " s left" in text
    assert seen(text.rpartition("\x1b[2K")[2]) == "tiny: 1 million parameters\nwritten in 2 s\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_stages_of_compiling(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if is_terminal else "0")
    monkeypatch.setenv("TERM", "xterm")
    with compile_progress.shown_stages("[Model]") as enter:
        for stage in compile_progress.STAGES:
            enter(stage)
    assert ("[Model]: " in capsys.readouterr().err) == is_terminal
