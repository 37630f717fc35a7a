"""How far an export has come: its stages in order, and how long each takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import exp
from typing import NamedTuple, Self

READING, LOADING = "reading the weights", "loading ExecuTorch"
ROUNDING = "rounding the weights"
QUANTISING, FINDING = "quantising and tracing the model", "finding what the GPU can run"
PACKING, WRITTEN = "packing the weights", "program written"


class _Cost(NamedTuple):
    """Seconds that a stage takes whatever the model, and for each million of its parameters."""

    fixed: float
    per_million: float


# From an export of 40 million parameters by executorch 1.5.1, on two busy cores: 814 s. What counts is how
# they compare; the pace of a machine is learnt from the stages that are behind.
STAGES = {
    READING: _Cost(0.2, 0.02),
    LOADING: _Cost(28.0, 0.0),
    ROUNDING: _Cost(0.0, 1.2),  # where weights are rounded with feedback
    QUANTISING: _Cost(14.0, 11.0),
    FINDING: _Cost(21.0, 6.5),
    PACKING: _Cost(2.0, 0.9),
    WRITTEN: _Cost(1.0, 0.25),
}


class Stage(str):
    """A line that opens a stage, with the seconds that are usual for it, and before it, and in all."""

    __slots__ = ("seconds", "seconds_before", "seconds_in_all")
    seconds: float
    seconds_before: float
    seconds_in_all: float

    @classmethod
    def of(cls, name: str, parameters: int) -> Self:
        """A stage of an export of so many parameters."""
        usual = [cost.fixed + cost.per_million * parameters / 1e6 for cost in STAGES.values()]
        index = list(STAGES).index(name)
        stage = cls(name)
        stage.seconds = usual[index]
        stage.seconds_before = list(accumulate(usual, initial=0.0))[index]
        stage.seconds_in_all = sum(usual)
        return stage


def in_stages(progress: Callable[[str], None], parameters: int) -> Callable[[str], None]:
    """Somebody to tell lines to, who passes them on, as stages where they open one."""
    return lambda line: progress(Stage.of(line, parameters) if line in STAGES else line)


class Course:
    """What share of an export is done, judged by how long its stages took so far. Times are in seconds."""

    def __init__(self, now: float) -> None:
        self._began = self._entered = now
        self._stage: Stage | None = None

    def enter(self, stage: Stage, now: float) -> None:
        self._stage, self._entered = stage, now

    def share(self, now: float) -> float:
        """From 0 to 1. A stage that takes longer than usual creeps towards its end without reaching it."""
        if self._stage is None:
            return 0.0
        stage, before = self._stage, self._stage.seconds_before
        slowness = (self._entered - self._began) / before if before else 1.0
        passed = (now - self._entered) / max(stage.seconds * slowness, 1e-3)
        done = 0.9 * passed if passed < 1 else 1 - 0.1 * exp(1 - passed)
        return (before + stage.seconds * done) / stage.seconds_in_all
