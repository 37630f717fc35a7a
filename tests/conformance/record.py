"""What a suite's recipe leaves on disk: cases, each a program with calls and the answers they must give."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FAILURES = ("wrong", "refused", "crashed", "timed out")  # of a case that was delegated
INDEX = "cases.json"  # written last: a folder that has it is complete


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the method "forward": tensors in and out, and how far an answer may be off."""

    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    absolute: float
    relative: float
    is_live: bool = False  # at sizes below those that the suite itself runs


@dataclass(frozen=True, slots=True)
class Case:
    """One program of a recipe, or the reason why there is none.

    `outcome` is None for a program to run; otherwise "not delegated", "export failed" or "skipped".
    """

    name: str
    program: bytes = b""
    calls: tuple[Call, ...] = ()
    outcome: str | None = None
    cause: str = ""


def write_cases(folder: Path, cases: Sequence[Case]) -> None:
    """Keep a recipe's cases in a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for position, case in enumerate(cases):
        arrays = {
            f"{call}.{role}.{place}": array
            for call, entry in enumerate(case.calls)
            for role, tensors in (("in", entry.inputs), ("out", entry.expected))
            for place, array in enumerate(tensors)
        }
        if case.outcome is None:
            (folder / f"{position}.pte").write_bytes(case.program)
            np.savez(folder / f"{position}.npz", allow_pickle=False, **arrays)
        calls = [
            {
                "inputs": len(call.inputs),
                "outputs": len(call.expected),
                "absolute": call.absolute,
                "relative": call.relative,
                "is_live": call.is_live,
            }
            for call in case.calls
        ]
        index.append({"name": case.name, "outcome": case.outcome, "cause": case.cause, "calls": calls})
    (folder / INDEX).write_text(json.dumps(index, indent=1))


def is_recorded(folder: Path) -> bool:
    """Whether a recipe was recorded to its end."""
    return (folder / INDEX).exists()


def read_cases(folder: Path) -> Iterator[Case]:
    """The cases that `write_cases` kept, one at a time: a model's weights are large."""
    for position, entry in enumerate(json.loads((folder / INDEX).read_text())):
        if entry["outcome"] is not None:
            yield Case(entry["name"], outcome=entry["outcome"], cause=entry["cause"])
            continue
        with np.load(folder / f"{position}.npz") as arrays:
            calls = tuple(
                Call(
                    tuple(arrays[f"{number}.in.{place}"] for place in range(call["inputs"])),
                    tuple(arrays[f"{number}.out.{place}"] for place in range(call["outputs"])),
                    call["absolute"],
                    call["relative"],
                    call["is_live"],
                )
                for number, call in enumerate(entry["calls"])
            )
        yield Case(entry["name"], (folder / f"{position}.pte").read_bytes(), calls)


def sentence(error: BaseException, length: int = 200) -> str:
    """An error in one line: its kind and the first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= length else text[: length - 1] + "…"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case.

    `outcome` is "pass", one of FAILURES, or the case's own. `operators` are those in the case's delegates
    with the element types they meet, `host` those outside; `shapes` counts the sets of input shapes.
    """

    name: str
    outcome: str
    cause: str = ""
    difference: float = 0.0  # the largest, absolute
    shapes: int = 0
    is_dynamic: bool = False
    seconds: float = 0.0
    operators: dict[str, list[str]] | None = None
    host: list[str] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# Cases that are known not to pass, each with its cause: left.csv, regular expressions of suite and case.


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
