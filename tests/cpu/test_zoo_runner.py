"""How `scripts/models` and `scripts/zoo` measure: a process for each name, results kept between commands."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from zoo.result import Result
from zoo.runner import Runner


def interrupt(name: str) -> Result:
    signal.raise_signal(signal.SIGINT)
    return Result(name, "right")


def test_results_are_kept(tmp_path: Path) -> None:
    """What was measured is not measured again, a process that ends becomes a result, `failed` repeats it. A
    process that a terminal interrupts goes on."""
    options = Namespace(folder=tmp_path / "results", jobs=1, limit=60, memory=8, rerun="none")

    def outcomes(measure: object, names: list[str]) -> dict[str, str]:
        runner = Runner(measure, Result, "zoo.result", options)  # type: ignore[arg-type]
        runner.run(names)
        return {name: f"{each.outcome} {each.reason}".strip() for name, each in runner.read_results().items()}

    right = partial(Result, outcome="right")
    assert outcomes(right, ["me/a:b"]) == {"me/a:b": "right"}
    assert outcomes(sys.exit, ["me/a:b", "c"]) == {"me/a:b": "right", "c": "crashed c"}
    options.rerun = "failed"
    assert outcomes(right, ["me/a:b", "c"]) == {"me/a:b": "right", "c": "right"}
    assert outcomes(interrupt, ["d"])["d"] == "right"
