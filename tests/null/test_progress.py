"""Progress: a bar on a terminal, a line now and then elsewhere, and an estimate."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from terminal_fixtures import on_terminal, seen

from pteron.cli.export_eta import ExportEta, load_slowness, save_slowness
from pteron.cli.progress import export_progress, extrapolate, format_remaining, show_progress
from pteron.errors import FormatError
from pteron.export import progress as compile_progress
from pteron.format.program_writer import StreamedData
from pteron.format.records import DelegateGraph
from pteron.llm.build.program import BuiltProgram
from pteron.llm.counted_line import CountedLine
from pteron.llm.export.cost import LOADING, QUANTISING, READING, STAGES, WRITTEN, Stage, report_stages
from pteron.llm.export.lowering import MILESTONES

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
    assert text.rpartition("\x1b[2K")[2].strip() == "done"  # the bar's line is erased at the end
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l") > 0  # the cursor is back


NOTE = """
import time, pteron.cli.progress as progress
from pteron.cli.terminal import StderrAboveBar, print_note
progress._BAR_DELAY = 0.05
with progress.show_progress("loading"):
    time.sleep(0.5)
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
    assert [format_remaining(seconds) for seconds in (0.9, 1.4, 19, 89, 91)] == [
        *("", "about 1 s left", "about 19 s left", "about 90 s left", "about 2 min left")
    ]


def test_stages_of_an_export() -> None:
    assert set(MILESTONES.values()) <= set(STAGES)
    told: list[str] = []
    tell = report_stages(told.append, 40_000_000)
    for line in (READING, "a remark", WRITTEN):
        tell(line)
    assert told == [READING, "a remark", WRITTEN]
    assert [isinstance(line, Stage) for line in told] == [True, False, True]


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


SIZE = 135_000_000  # parameters; the usual times are those of a slower machine


@dataclass
class Shown:
    """What the bar shows in a second of an export."""

    now: float
    left: float | None
    share: float
    truth: float  # seconds that are left


def followed(eta: ExportEta, times: dict[str, float]) -> list[Shown]:
    """An export, by a clock of the test, whose stages take `times` as long as usual."""
    usual = Stage.of(READING, SIZE, rounds=False).usual
    took = {name: seconds * times.get(name, 1.0) for name, seconds in usual.items()}
    shown, now, end = [], 0.0, sum(took.values())
    for name in usual:
        eta.enter(Stage.of(name, SIZE, rounds=False), now)
        for second in range(int(took[name])):
            at = now + second
            shown.append(Shown(at, eta.remaining(at), eta.share(at), end - at))
        now += took[name]
    eta.leave(now)
    assert (eta.remaining(now), eta.share(now)) == (None, 1)  # between stages
    shares = [each.share for each in shown]
    assert shares == sorted(shares)
    return shown


def jumps(shown: list[Shown]) -> list[float]:
    """How much the time left changes from one second to the next, beside the second that passed."""
    return [
        abs(after.left - before.left + after.now - before.now)
        for before, after in pairwise(shown)
        if before.left is not None and after.left is not None
    ]


FAST = dict.fromkeys(STAGES, 0.24) | {LOADING: 0.5}  # 11 minutes where 44 are usual


def test_the_first_export_on_a_machine() -> None:
    """Nothing is shown before enough is measured, and what is shown then is right."""
    shown = followed(ExportEta(), FAST)
    end = shown[-1].now
    assert all(each.left is None for each in shown if each.now < 0.5 * end)
    known = [each for each in shown if each.left is not None]
    assert known[0].now < 0.6 * end
    assert all(abs(each.left - each.truth) < 0.05 * end for each in known if each.left is not None)
    assert max(jumps(shown)) < 2


def test_the_next_export_knows_the_machine() -> None:
    first = ExportEta()
    followed(first, FAST)
    shown = followed(ExportEta(first.slowness), FAST)
    assert all(each.left is not None and abs(each.left - each.truth) < 2 for each in shown)


def test_a_machine_that_slept() -> None:
    """What it has missed is not its pace."""
    eta = ExportEta()
    eta.enter(Stage.of(READING, SIZE, rounds=False), 0)
    eta.leave(1e9)
    assert eta.slowness[READING] == 100


def test_a_cold_disk() -> None:
    """A slow first stage does not change what is expected of the others by much."""
    first = ExportEta()
    followed(first, FAST)
    shown = followed(ExportEta(first.slowness), FAST | {READING: 10.0})
    end = shown[-1].now
    assert all(each.left is not None and abs(each.left - each.truth) < 0.1 * end for each in shown)


def test_a_busy_machine() -> None:
    """Everything takes twice as long as before: the time left follows, without jumps."""
    first = ExportEta()
    followed(first, FAST)
    busy = {name: 2 * slowness for name, slowness in FAST.items()}
    second = ExportEta(first.slowness)
    shown = followed(second, busy)
    end = shown[-1].now
    late = [each for each in shown if each.now > 0.6 * end]
    assert all(each.left is not None and abs(each.left - each.truth) < 0.15 * end for each in late)
    assert max(jumps(shown)) < 0.02 * end
    learned = pytest.approx(1.5 * first.slowness[QUANTISING])  # half of the difference
    assert second.slowness[QUANTISING] == learned


def test_an_interrupted_export_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    def interrupted() -> None:
        with export_progress() as tell:
            for name in (READING, LOADING, QUANTISING):
                report_stages(tell, SIZE)(name)
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert signal.getsignal(signal.SIGTERM) is before
    assert set(load_slowness()) == {READING, LOADING}


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


def test_paces_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    assert load_slowness() == {}
    save_slowness({READING: 2.0, LOADING: 0.0, QUANTISING: 1e9})
    assert load_slowness() == {READING: 2.0, LOADING: 0.01, QUANTISING: 100.0}
    for damaged in ("", "[1]", '{"a": []}'):
        (tmp_path / "cache" / "export_stages.json").write_text(damaged, "utf-8")
        assert load_slowness() == {}


EXPORT = """
import time, pteron.cli.progress as progress
from pteron.cli.progress import export_progress
from pteron.llm.export.cost import STAGES, report_stages
progress._BAR_DELAY = 0.05
with export_progress() as tell:
    tell = report_stages(tell, 1_000_000)
    tell("tiny: 1 million parameters")
    for line in STAGES:
        tell(line)
        time.sleep(0.5)
    tell("written in 2 s")
"""


@pytest.mark.long
def test_an_export_on_a_terminal(tmp_path: Path) -> None:
    """One line with the current stage, then the notes."""
    text = on_terminal(EXPORT, 100, PTERON_CACHE=str(tmp_path))
    for line in (LOADING, QUANTISING):
        assert line in text
    assert "left" not in text.partition(LOADING)[0]  # nothing is known yet
    again = on_terminal(EXPORT, 100, PTERON_CACHE=str(tmp_path))
    assert "left" in again.partition(LOADING)[0]  # in the first stage already
    assert seen(text.rpartition("\x1b[2K")[2]) == "tiny: 1 million parameters\nwritten in 2 s\n"
    assert set(json.loads((tmp_path / "export_stages.json").read_text("utf-8"))) == set(STAGES)


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
