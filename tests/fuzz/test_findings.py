"""Findings of the fuzzer stay fixed. A file is named after its target: `scripts/fuzz --replay FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.__main__ import missing
from fuzz.replay import replay_all, target_of
from fuzz.target import Target

FILES = sorted((Path(__file__).parent / "findings").iterdir())


def target(file: Path) -> Target:
    found = target_of(file)
    assert found is not None, f"{file.name} is not named after a target"
    return found


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, tuple[str, str]]:
    return replay_all([(target(file), file) for file in FILES if not missing(target(file))])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_finding_stays_fixed(file: Path, outcomes: dict[Path, tuple[str, str]]) -> None:
    if reason := missing(target(file)):
        pytest.skip(reason)
    key, text = outcomes[file]
    assert not text, f"{key}\n{text}"
