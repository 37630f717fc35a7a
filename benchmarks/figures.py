"""Measured figures: with the floor that physics sets, written to a file, compared with an earlier file.

    python benchmarks/figures.py BEFORE.json AFTER.json

prints both beside each other and fails where one is worse than before by more than noise: by more than runs
of such figures differ (5 % on the GPU, 20 % where the host's speed decides), and by more than three times the
spread that either run saw.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

TOLERANCE = 0.05  # what a GPU's clock does to figures, whatever is measured
HOST_TOLERANCE = 0.2  # the same where the host decides, whose cores others use too
SPREADS = 3  # median absolute deviations that are still noise
CHAT_SPREAD = 0.8  # of the logarithm of the lengths of prompts in chats, about


@dataclass(frozen=True)
class Figure:
    """A median over several samples."""

    name: str
    value: float
    unit: str
    spread: float = 0.0  # the median distance of samples from it
    floor: float | None = None  # the best that bytes, dispatches and arithmetic allow, in the same unit
    higher_is_better: bool = False
    tolerance: float = TOLERANCE  # how much of it may differ from run to run

    @classmethod
    def of(
        cls,
        name: str,
        samples: Sequence[float],
        unit: str,
        floor: float | None = None,
        higher_is_better: bool = False,
        tolerance: float = TOLERANCE,
    ) -> Figure:
        middle = statistics.median(samples)
        spread = statistics.median(abs(sample - middle) for sample in samples)
        return cls(name, middle, unit, spread, floor, higher_is_better, tolerance)

    @property
    def fraction(self) -> float | None:
        """How much of what is possible was reached."""
        if not self.floor:
            return None
        return self.value / self.floor if self.higher_is_better else self.floor / self.value

    def __str__(self) -> str:
        reached = f", {self.fraction:.0%} of {self.floor:,.4g}" if self.fraction else ""
        return f"{self.name}: {self.value:,.4g} ± {self.spread:,.2g} {self.unit}{reached}"

    def is_worse_than(self, before: Figure) -> bool:
        """Whether it is behind an earlier run by more than noise."""
        loss = before.value - self.value if self.higher_is_better else self.value - before.value
        noise = max(self.tolerance * abs(before.value), SPREADS * max(self.spread, before.spread))
        return loss > noise


def percentile(samples: Sequence[float], place: int) -> float:
    """The value that this percentage of samples stays below."""
    if len(samples) < 2:
        return sum(samples)
    return statistics.quantiles(samples, n=100, method="inclusive")[place - 1]


def drawn_lengths(
    count: int, median: int, most: int, seed: object = 0, spread: float = CHAT_SPREAD
) -> list[int]:
    """Lengths of prompts, 1 to `most`, from a log-normal distribution: those of a day differ at each call."""
    draws = random.Random(str(seed))
    return [min(most, max(1, round(median * draws.lognormvariate(0, spread)))) for _ in range(count)]


def add(path: str | Path, machine: str | None, figures: Iterable[Figure]) -> None:
    """Add figures to a file, in the place of those of the same names. One file is of one machine: that is its
    adapter, or without one, this processor where the file is new."""
    old_machine, kept = read(path) if Path(path).exists() else (machine or processor(), {})
    if machine not in (None, old_machine):
        raise SystemExit(f"{path} is of {old_machine}, not of {machine}")
    write(path, old_machine, {**kept, **{figure.name: figure for figure in figures}}.values())


def processor() -> str:
    """This machine without its adapters."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def write(path: str | Path, machine: str, figures: Iterable[Figure]) -> None:
    content = {"machine": machine, "figures": [asdict(figure) for figure in figures]}
    Path(path).write_text(json.dumps(content, indent=1) + "\n")


def read(path: str | Path) -> tuple[str, dict[str, Figure]]:
    """The machine, and its figures by name."""
    content = json.loads(Path(path).read_text())
    figures = (Figure(**figure) for figure in content["figures"])
    return content["machine"], {figure.name: figure for figure in figures}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    files = parser.parse_args(arguments)
    (old_machine, old), (new_machine, new) = read(files.before), read(files.after)
    if old_machine != new_machine:
        print(f"{files.before} is of {old_machine}, {files.after} of {new_machine}: not to be compared")
        return 2
    worse = [name for name in old if name in new and new[name].is_worse_than(old[name])]
    for name in old.keys() | new.keys():
        if name not in new or name not in old:
            print(f"only in {files.before if name in old else files.after}: {name}")
    for name in (name for name in old if name in new):
        ratio = new[name].value / old[name].value if old[name].value else float("nan")
        mark = "  WORSE" if name in worse else ""
        print(f"{new[name]}; before {old[name].value:,.4g}, ratio {ratio:.2f}{mark}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
