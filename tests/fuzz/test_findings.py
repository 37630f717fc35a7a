"""What fuzzers once found stays mended. Files are called after their target: `scripts/fuzz --replay FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.__main__ import missing
from fuzz.known import FINDINGS, OPEN
from fuzz.replay import replay_all, target_of
from fuzz.target import Target

FILES = sorted(FINDINGS.iterdir())


def target(file: Path) -> Target:
    found = target_of(file)
    assert found is not None, f"{file.name} is not called after a target"
    return found


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, tuple[str, str]]:
    return replay_all([(target(file), file) for file in FILES if not missing(target(file))])


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file, marks=pytest.mark.xfail(reason=OPEN[file.name], strict=True) if file.name in OPEN else ()
        )
        for file in FILES
    ],
    ids=lambda file: file.name,
)
def test_a_finding_stays_mended(file: Path, outcomes: dict[Path, tuple[str, str]]) -> None:
    if reason := missing(target(file)):
        pytest.skip(reason)
    key, text = outcomes[file]
    assert not text, f"{key}\n{text}"


def test_what_is_open_is_kept() -> None:
    assert set(OPEN) <= {file.name for file in FILES}
