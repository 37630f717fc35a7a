"""A short run of every target with a fixed seed, earlier findings, and tests of the fuzzer itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import SOURCES
from fuzz.__main__ import missing
from fuzz.campaign import Campaign
from fuzz.replay import replay_all, target_of
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS

# Executions, so that each takes two or three seconds here; the long version is `scripts/fuzz 10`.
SHORT = {"graphs": 15, "plans": 60, "programs": 80, "hosted": 60, "template": 60, "gguf": 60, "inspect": 100}


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing_new(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    if reason := missing(target):
        pytest.skip(reason)
    assert all(any(SOURCES.glob(pattern)) for pattern in target.watched)
    executions = SHORT.get(name, 500)
    report = Campaign(target, tmp_path, seed=1).run(seconds=120, executions=executions)
    assert report.executions >= executions
    assert report.lines > 0
    assert not {key: file.with_suffix(".txt").read_text("utf-8") for key, file in report.findings.items()}


# Findings stay fixed: a file is named after its target; `scripts/fuzz --replay FILE` --------------


FINDINGS = sorted((Path(__file__).parent / "findings").iterdir())


def target_named(file: Path) -> Target:
    found = target_of(file)
    assert found is not None, f"{file.name} is not named after a target"
    return found


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, tuple[str, str]]:
    return replay_all([(target_named(file), file) for file in FINDINGS if not missing(target_named(file))])


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.name)
def test_a_finding_stays_fixed(file: Path, outcomes: dict[Path, tuple[str, str]]) -> None:
    if reason := missing(target_named(file)):
        pytest.skip(reason)
    key, text = outcomes[file]
    assert not text, f"{key}\n{text}"


# The fuzzer itself ------------------------------------------------------------------------------


def _broken(data: bytes) -> str:
    if b"bad" in data:
        raise KeyError("bad")
    return "good"


BROKEN = Target(
    name="broken",
    run=_broken,
    seeds=lambda: iter([b"x"]),
    mutate=lambda d, r, o: d,
    watched=(),
    suffix=".bin",
)


def test_a_fault_is_identified_by_its_error_and_place() -> None:
    assert judge(BROKEN, b"x") == "good"
    fault = judge(BROKEN, b"a bad one")
    assert isinstance(fault, Fault)
    assert fault.key == "KeyError"


def test_too_much_time_is_a_fault() -> None:
    def endless(data: bytes) -> str:
        while True:
            pass

    fault = judge(Target(**{**vars(BROKEN), "run": endless, "seconds": 0.2}), b"")
    assert isinstance(fault, Fault)
    assert fault.key == "TooSlowError"
