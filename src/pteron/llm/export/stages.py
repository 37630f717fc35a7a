"""How far an export has come: its stages in order, and how long each takes."""

from __future__ import annotations

from collections.abc import Callable
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
# they compare; the pace of a machine is learnt on the way (cli/export_progress.py).
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
    """A line that opens a stage, with the seconds that each stage of such an export usually takes."""

    __slots__ = ("usual",)
    usual: dict[str, float]

    @classmethod
    def of(cls, name: str, parameters: int) -> Self:
        """A stage of an export of so many parameters."""
        stage = cls(name)
        millions = parameters / 1e6
        stage.usual = {name: cost.fixed + cost.per_million * millions for name, cost in STAGES.items()}
        return stage


def in_stages(progress: Callable[[str], None], parameters: int) -> Callable[[str], None]:
    """Somebody to tell lines to, who passes them on, as stages where they open one."""
    return lambda line: progress(Stage.of(line, parameters) if line in STAGES else line)
