"""A short run of every target with a fixed seed, earlier findings, and tests of the fuzzer itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fuzz import SOURCES
from fuzz.__main__ import missing
from fuzz.campaign import Campaign
from fuzz.draft import Draft
from fuzz.lines import Lines
from fuzz.minimise import simplify
from fuzz.mutation.flatbuffers import field_mutation
from fuzz.replay import replay, replay_all, target_of
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS
from fuzz.targets.files import programs, read_whole_program
from fuzz.targets.seeded_graphs import graph_seeds
from fuzz.worker import save
from pteron.format.program import read_program

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
    if b"die" in data:
        import os

        os.abort()
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


def test_a_finding_is_minimised(tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    file = save(tmp_path, BROKEN, Fault("KeyError", ""), b"some bad thing among others", b"x")
    simplify(BROKEN, file, lambda data: isinstance(judge(BROKEN, data), Fault), seconds=5)
    assert file.read_bytes() == b"bad"


def test_an_input_replays_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "weights-of_nothing.ptd").write_bytes(b"[1]")
    target = target_of(tmp_path / "weights-of_nothing.ptd")
    assert target is TARGETS["weights"]
    assert replay(target, tmp_path / "weights-of_nothing.ptd") == ("FormatError", "")


def test_fields_are_mutated_where_the_reader_reads() -> None:
    """Most changes go where structure is: the header, tables and vectors, of the program and its delegate."""
    seed = next(data for data in programs() if read_program(data, "seed").methods[0].delegates)
    mutate = field_mutation(read_whole_program)
    changed, again = ([mutate(seed, Random(n), lambda: seed) for n in range(200)] for _ in range(2))
    assert changed == again
    same_size = [copy for copy in changed if len(copy) == len(seed)]
    few = [copy for copy in same_size if sum(a != b for a, b in zip(copy, seed, strict=True)) <= 8]
    assert len(few) > 150


def test_drafts_come_back() -> None:
    for blob in list(graph_seeds())[:20]:
        draft = Draft.of(blob)
        assert Draft.of(draft.compact().blob()).nodes == draft.compact().nodes
        assert Draft.of(draft.blob()) == draft


def test_lines_that_ran_are_noted() -> None:
    lines = Lines(("format/program.py",))
    with lines.watching():
        read_program(next(iter(programs())), "seed")
    assert 10 < len(lines.reached) < len(lines.all)
    assert lines.reached <= lines.all
