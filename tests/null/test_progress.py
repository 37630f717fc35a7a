"""Progress: a bar on a terminal, a line now and then elsewhere, and an estimate."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal_fixtures import on_terminal, seen

from pteron.cli.progress import (
    ExportEta,
    extrapolate,
    format_remaining,
    load_slowness,
    save_slowness,
    show_progress,
)
from pteron.export import progress as compile_progress
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
    assert format_remaining(extrapolate(10, 995, 1000)) == ""
    assert extrapolate(10, 0, 100) is extrapolate(10, 3, 0) is extrapolate(0.5, 50, 100) is None


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


def followed(eta: ExportEta, times: dict[str, float]) -> list[tuple[float, float, float]]:
    """Simulate an export of 40 million parameters whose stages take `times` as long as usual. Returns for
    every second the elapsed time, the share done, and the error of the estimated remaining time."""
    usual = Stage.of(READING, 40_000_000).usual
    took = {name: seconds * times.get(name, 1.0) for name, seconds in usual.items()}
    seen, now, end = [], 0.0, sum(took.values())
    for name in STAGES:
        eta.enter(Stage.of(name, 40_000_000), now)
        for second in range(int(took[name])):
            left = eta.remaining(now + second)
            assert left is not None
            seen.append((now + second, eta.share(now + second), left - (end - now - second)))
        now += took[name]
    eta.leave(now)
    return seen


def test_the_estimate_learns_the_pace_of_a_machine() -> None:
    """Three times as fast as usual, except for a slow first stage."""
    eta = ExportEta()
    times = dict.fromkeys(STAGES, 1 / 3) | {READING: 10.0}
    seen = followed(eta, times)
    end = seen[-1][0]
    assert all(abs(error) < 0.1 * end for passed, _, error in seen if passed > 0.65 * end)
    assert [share for _, share, _ in seen] == sorted(share for _, share, _ in seen)
    assert all(abs(error) < 2 for _, _, error in followed(ExportEta(eta.slowness), times))  # the next one


def test_paces_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    assert load_slowness() == {}
    save_slowness({READING: 2.0, LOADING: 0.0})
    assert load_slowness() == {READING: 2.0, LOADING: 0.01}
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
    assert "left" in text.partition(LOADING)[0]  # in the first stage already
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
