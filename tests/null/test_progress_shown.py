"""Progress: a bar on a terminal, a line now and then elsewhere, and an estimate."""

from __future__ import annotations

import io
import sys

import pytest
from test_screen import on_terminal, seen

from pteron.cli.progress import estimate, shown
from pteron.llm.export.apart import MILESTONES
from pteron.llm.export.stages import LOADING, QUANTISING, READING, STAGES, WRITTEN, Course, Stage, in_stages

BAR = """
import time, pteron.cli.progress as progress
progress._PATIENCE = {patience}
with progress.shown("loading") as tell:
    while {waits} and tell.__self__._shown is None:
        time.sleep(0.01)
    time.sleep(0.5)
    tell("packing", 1, 2)
    time.sleep(0.5)
print("done")
"""


def test_a_terminal_shows_a_bar_and_then_nothing_of_it() -> None:
    text = on_terminal(BAR.format(patience=0.1, waits=True), 80)
    assert "loading" in text
    assert "packing" in text
    assert "0:00:0" in text  # elapsed
    assert text.rpartition("\x1b[2K")[2].strip() == "done"  # the bar's line is erased at the end
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l") > 0  # the cursor is back


def test_what_is_quick_shows_nothing() -> None:
    assert seen(on_terminal(BAR.format(patience=60, waits=False), 80)) == "done\n"


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    written = io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(sys, "stderr", written)
    with shown("loading") as tell:
        for second in range(200):
            now = float(second)
            tell("packing", second, 200)
    assert written.getvalue().splitlines() == [
        "packing: 30 of 200",
        "packing: 90 of 200",
        "packing: 150 of 200",
    ]


def test_the_time_that_is_left() -> None:
    assert estimate(10, 50, 100) == "about 10 s left"
    assert estimate(300, 250, 1000) == "about 15 min left"
    assert estimate(10, 0, 100) == estimate(10, 3, 0) == estimate(0.5, 50, 100) == ""


def test_an_export_tells_its_stages() -> None:
    assert set(MILESTONES.values()) <= set(STAGES)
    told: list[str] = []
    tell = in_stages(told.append, 40_000_000)
    for line in (READING, "a remark", WRITTEN):
        tell(line)
    assert told == [READING, "a remark", WRITTEN]
    assert [isinstance(line, Stage) for line in told] == [True, False, True]


def test_a_course_goes_on_and_never_back() -> None:
    parameters, now = 40_000_000, 0.0
    course, shares = Course(now), [0.0]
    for name in STAGES:  # on a machine twice as slow, whose quantising is four times as slow
        stage = Stage.of(name, parameters)
        course.enter(stage, now)
        took = stage.seconds * (4 if name == QUANTISING else 2)
        for step in range(1, 11):
            shares.append(course.share(now + took * step / 10))
        now += took
    assert shares == sorted(shares)
    assert 0.95 < shares[-1] <= 1
    halfway = Course(0.0)
    halfway.enter(Stage.of(LOADING, parameters), 1.0)
    assert halfway.share(1.0) == pytest.approx(1.0 / Stage.of(LOADING, parameters).seconds_in_all, rel=0.1)


EXPORT = """
import time, pteron.cli.progress as progress
from pteron.cli.exporting import told
from pteron.llm.export.stages import STAGES, in_stages
progress._PATIENCE = 0.05
with told() as tell:
    tell = in_stages(tell, 1_000_000)
    tell("tiny: 1 million parameters")
    for line in STAGES:
        tell(line)
        time.sleep(0.6)
    tell("written in 2 s")
"""


def test_an_export_on_a_terminal() -> None:
    """A stage at a time in one line, then the remarks."""
    text = on_terminal(EXPORT, 100)
    for line in (LOADING, QUANTISING):
        assert line in text
    assert "left" in text
    assert seen(text.rpartition("\x1b[2K")[2]) == "tiny: 1 million parameters\nwritten in 2 s\n"
