"""A short run of every target with a fixed seed, earlier findings, and tests of the fuzzer itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fuzz.draft import Draft
from fuzz.mutation.flatbuffers import field_mutation
from fuzz.process import fuzz, missing, replay, target_of
from fuzz.target import Fault, Target, judge
from fuzz.targets import TARGETS
from fuzz.targets.files import programs, read_whole_program
from fuzz.targets.seeded_graphs import graph_seeds
from pteron.format.program import read_program

# Executions, so that each takes two or three seconds here; the long version is `scripts/fuzz 10`.
SHORT = {
    "graphs": 15,
    "plans": 60,
    "programs": 80,
    "template": 60,
    "gguf": 60,
    "program": 100,
    "safetensors": 100,
    "tiktoken": 100,
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing_new(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    if reason := missing(target):
        pytest.skip(reason)
    executions = SHORT.get(name, 500)
    report = fuzz(target, tmp_path, seed=1, seconds=120, executions=executions)
    assert not {key: file.with_suffix(".txt").read_text("utf-8") for key, file in report.findings.items()}
    assert report.executions == executions


FINDINGS = sorted((Path(__file__).parent / "findings").iterdir())


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, tuple[str, str]]:
    return replay([file for file in FINDINGS if not missing(target_of(file))])


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.name)
def test_a_finding_stays_fixed(file: Path, outcomes: dict[Path, tuple[str, str]]) -> None:
    if reason := missing(target_of(file)):
        pytest.skip(reason)
    key, text = outcomes[file]
    assert not text, f"{key}\n{text}"


# The fuzzer itself ------------------------------------------------------------------------------


def _broken(data: bytes) -> str:
    while b"endless" in data:
        pass
    if b"bad" in data:
        raise KeyError("bad")
    return "good"


@pytest.mark.parametrize(("data", "key"), [(b"a bad one", "KeyError"), (b"endless", "TooSlowError")])
def test_errors_and_endless_loops_are_faults(data: bytes, key: str) -> None:
    broken = Target(name="broken", run=_broken, seeds=tuple, mutate=lambda d, r, o: d, suffix="", seconds=0.2)
    assert judge(broken, b"x") == "good"
    fault = judge(broken, data)
    assert isinstance(fault, Fault)
    assert fault.key == key


def test_an_input_replays_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "weights-of_nothing.ptd"
    file.write_bytes(b"[1]")
    assert replay([file]) == {file: ("FormatError", "")}


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
