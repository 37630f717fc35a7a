"""Cases that are known not to pass, each with its cause: left.csv, regular expressions of suite and case."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from conformance.record import FAILURES, Result


def cause_left(suite: str, result: Result) -> str | None:
    """Why a failed case may fail, or None."""
    for kind, pattern, cause in _known():
        if re.fullmatch(kind, suite) and re.fullmatch(pattern, result.name):
            return cause
    return None


def is_failure(suite: str, result: Result) -> bool:
    """Whether a case failed that should pass."""
    return result.outcome in FAILURES and cause_left(suite, result) is None


@cache
def _known() -> tuple[tuple[str, str, str], ...]:
    with Path(__file__).with_name("left.csv").open(newline="") as file:
        return tuple((row["suite"], row["case"], row["cause"]) for row in csv.DictReader(file))
