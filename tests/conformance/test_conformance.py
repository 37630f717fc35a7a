"""What drives the suites: workers that die, results that are kept, the page that is written."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from conformance import cache, record
from conformance.record import FAILURES, Call, Case, Result, is_failure, is_recorded, read_cases, write_cases
from conformance.report import CASES, PAGE, UNDELEGATED, cases_left, measure, page
from conformance.schedule import run_jobs
from conformance.suites import SUITES
from conformance.worker import Job

pytest.importorskip("executorch")  # whose version names what is kept

NOT_DELEGATED = Case("second", outcome="not delegated", cause="nothing to do")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workers read the environment, this process its module."""
    monkeypatch.setenv("PTERON_CONFORMANCE", str(tmp_path))
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    return tmp_path


def test_cases_are_kept(tmp_path: Path) -> None:
    inputs = (np.arange(3), np.array(2, np.float32))
    call = Call(inputs, (np.zeros((0, 2), bool),), 1e-3, 1e-4, is_live=True)
    assert not is_recorded(tmp_path)
    write_cases(tmp_path, [Case("first", b"program", (call, call)), NOT_DELEGATED])
    first, second = read_cases(tmp_path)
    assert second == NOT_DELEGATED
    assert (first.name, first.program, len(first.calls)) == ("first", b"program", 2)
    for kept in first.calls:
        assert (kept.absolute, kept.relative, kept.is_live) == (1e-3, 1e-4, True)
        for array, original in zip(kept.inputs + kept.expected, call.inputs + call.expected, strict=True):
            np.testing.assert_array_equal(array, original, strict=True)


def test_a_worker_that_dies_harms_no_other_job(folder: Path) -> None:
    write_cases(cache.records_of("webgpu", "good"), [NOT_DELEGATED])
    write_cases(cache.records_of("webgpu", "bad"), [Case("first", b"no program"), NOT_DELEGATED])
    finished: dict[str, list[Result]] = {}
    jobs = [Job("no such suite", "lost"), Job("webgpu", "bad"), Job("webgpu", "good")]
    run_jobs(jobs, 1, 120, None, lambda job, results: finished.update({job.recipe: results}))
    assert [result.outcome for result in finished["lost"]] == ["crashed"]
    assert [result.outcome for result in finished["bad"]] == ["crashed", "not delegated"]
    assert finished["good"] == [Result("second", "not delegated", "nothing to do")]


def test_what_takes_too_long_is_ended(folder: Path) -> None:
    finished: list[Result] = []
    run_jobs([Job("webgpu", "never")], 1, 0.0, None, lambda job, results: finished.extend(results))
    assert [(result.outcome, result.cause) for result in finished] == [("timed out", "while it was exported")]


def test_results_are_kept(folder: Path) -> None:
    path = cache.result_file("An adapter (CPU)", "webgpu", "add/case")
    assert cache.read_results(path) is None
    results = [Result("add/case", "wrong", "why", 0.5, operators={"aten.add.Tensor": ["f32"]}, host=[])]
    cache.write_results(path, "add/case", "hash", results)
    assert cache.read_results(path) == ("hash", results)


def test_what_is_recorded_is_found(folder: Path) -> None:
    assert cache.recorded_recipes("webgpu") == []
    write_cases(cache.records_of("webgpu", "an/odd [name]"), [NOT_DELEGATED])
    (name,) = cache.recorded_recipes("webgpu")
    assert cache.records_of("webgpu", name) == cache.records_of("webgpu", "an/odd [name]")


def test_cases_left_are_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_known", lambda: (("webgpu", "add/.*", "a cause"),))
    wrong = Result("add/case", "wrong")
    assert not is_failure("webgpu", wrong)
    assert is_failure("generic", wrong)
    assert is_failure("webgpu", replace(wrong, name="sub/case"))
    assert not is_failure("webgpu", Result("sub/case", "export failed"))


def test_the_page() -> None:
    add = {"aten.add.Tensor": ["f32"]}
    results = {
        "webgpu": [
            Result("add/a", "pass", operators=add, shapes=4, is_dynamic=True),
            Result("add/b", "refused", "does not fit_here", operators=add),
            Result("add/c", "not delegated"),
        ],
        "live": [Result("add/c", "not delegated")],
        "forms": [
            Result("aten.add.Tensor/f32/[2, 3] [3]/x + y", "pass"),
            Result("aten.add.Tensor/i32/[2, 3] [3]/x + y", "pass"),
            Result("aten.add.Tensor/f32/[2]/x * y", "pass"),
            Result("aten.add.Tensor/f32/[2]/x - y", "pass"),
            Result("aten.add.Tensor/f32/[2]/x / 2", "not delegated"),
            Result("aten.add.Tensor/f32/[]/x + 3", "refused", "no_t"),
        ],
    }
    assert measure(results)["aten.add.Tensor"].met == 2
    text = "\n".join(page(results, {"webgpu": 7, "live": 0, "forms": 0}, "An adapter", "2026-01-01"))
    assert f"| {SUITES['webgpu'].title} | 1 | 0 | 1 | 0 | 0 | 1 | 0 | 0 | 7 |" in text
    assert "| `aten.add.Tensor` | yes | f32 | f16 f32 i32 i64 | yes, 4 | 1/2 | yes |" in text
    assert r"| refused | 1 | `webgpu` | does not fit\_here |" in text
    assert (
        "| not delegated | 1 | `webgpu`, `live` | the partitioner leaves the whole program to the host |"
        in text
    )
    assert cases_left(results).splitlines() == [
        "suites,outcome,case,cause",
        "webgpu,refused,add/b,does not fit_here",
        "forms,refused,aten.add.Tensor/f32/[]/x + 3,no_t",
        f"webgpu live,not delegated,add/c,{UNDELEGATED}",
        f"forms,not delegated,aten.add.Tensor/f32/[2]/x / 2,{UNDELEGATED}",
    ]
    passed = "`x + y` of [2, 3] [3] in f32 i32; `x * y` of [2], `x - y` of [2] in f32"
    other = r"`x + 3` of [] in f32: refused, no\_t"
    assert f"| `aten.add.Tensor` | {passed} | `x / 2` of [2] in f32 | {other} |" in text
    assert "- `getitem`: " in text
    assert "| `getitem`" not in text


def test_page_and_cases_agree() -> None:
    """The committed page, its table of suites and its list of cases."""
    text = PAGE.read_text("utf-8")
    with CASES.open(newline="", encoding="utf-8") as file:
        cases = list(csv.DictReader(file))
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (`.*?`) \| ", text, re.MULTILINE)
    assert rows == [
        (outcome, str(len(list(group))), ", ".join(f"`{suite}`" for suite in suites.split()))
        for (outcome, suites, _), group in groupby(
            cases, key=lambda case: (case["outcome"], case["suites"], case["cause"])
        )
    ]
    listed = Counter((suite, case["outcome"]) for case in cases for suite in case["suites"].split())
    outcomes = (*FAILURES, "not delegated", "export failed", "skipped")
    for name, suite in SUITES.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {suite.title} |"))
        counts = [int(count) for count in line.split("|")[3:-2]]
        assert counts == [listed[name, outcome] for outcome in outcomes], name
