"""Two benchmarks -> what became slower or faster, beyond noise and beyond what is tolerated.

Samples are compared by the test of Mann and Whitney, which asks how often one of the new ones is longer than
one of the old, and supposes nothing of how they are spread. It takes them for independent, which neighbours
in time are not: so besides, every round must have been slower than every earlier one, by its median. Where
the control, which has nothing to do with programs, became slower too, a case must have done so by more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pteron.errors import InputError
from pteron.tools.bench.report import CONTROL, Bench, Case

SIGNIFICANCE = 0.01  # how often equal programs may be told apart
SAMPLES_MIN = 8  # of each: with fewer, chance alone tells equal ones apart too often


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case then and now. `ratio` is of the medians: above 1 is slower now; `chance` how likely samples lie
    this far apart where nothing has changed."""

    old: Case
    new: Case
    ratio: float
    chance: float
    verdict: str  # "slower", "faster", "same", "noise", "too few samples", or "as slow as the machine"


@dataclass(frozen=True, slots=True)
class Judgement:
    """All cases that both benchmarks have, and the names of those that one lacks."""

    comparisons: tuple[Comparison, ...]  # the controls among them
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        return any(each.verdict == "slower" for each in self.comparisons if each.new.what != CONTROL)


def judge(old: Bench, new: Bench, tolerance: float = 0.05) -> Judgement:
    """Compare what both have measured. A median may differ by `tolerance`, a fraction, whatever the noise."""
    if not 0 <= tolerance < math.inf:
        raise InputError(f"the tolerance must be a fraction such as 0.05, not {tolerance}")
    before, after = ({case.key: case for case in bench.cases} for bench in (old, new))
    shared = [key for key in before if key in after]
    if all(before[key].what == CONTROL for key in shared):
        known = "; ".join(f"{case.name} on {case.device}" for case in (*old.cases[:1], *new.cases[:1]))
        raise InputError(f"the two results have no case in common: {known}")
    compared = [_compare(before[key], after[key], tolerance) for key in shared]
    return Judgement(
        tuple(_beside_control(each, compared, tolerance) for each in compared),
        tuple(f"{case.name} on {case.device}" for key, case in before.items() if key not in after),
        tuple(f"{case.name} on {case.device}" for key, case in after.items() if key not in before),
    )


def _compare(old: Case, new: Case, tolerance: float) -> Comparison:
    ratio = new.percentile(50) / old.percentile(50)
    chance = mann_whitney(old.samples, new.samples)
    first, second = old.round_medians, new.round_medians
    is_near = 1 / (1 + tolerance) <= ratio <= 1 + tolerance
    verdict = "same" if is_near else "noise"
    if min(len(old.samples), len(new.samples)) < SAMPLES_MIN:
        verdict = "too few samples"
    elif chance < SIGNIFICANCE and ratio > 1 + tolerance and min(second) > max(first):
        verdict = "slower"
    elif chance < SIGNIFICANCE and ratio < 1 / (1 + tolerance) and max(second) < min(first):
        verdict = "faster"
    return Comparison(old, new, ratio, chance, verdict)


def _beside_control(each: Comparison, compared: Sequence[Comparison], tolerance: float) -> Comparison:
    """Slower only if it is by more than the same adapter's control, where that is."""
    slowdown = max(
        (
            other.ratio
            for other in compared
            if (other.new.what, other.new.device, other.verdict) == (CONTROL, each.new.device, "slower")
        ),
        default=1.0,
    )
    is_own = each.new.what == CONTROL or each.ratio > slowdown * (1 + tolerance)
    return each if each.verdict != "slower" or is_own else replace(each, verdict="as slow as the machine")


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """How likely samples of one distribution lie at least as far apart as these, in either direction: by the
    normal distribution that the number of pairs in order approaches, corrected for ties and for being a whole
    number."""
    a, b = len(first), len(second)
    values = np.concatenate([np.asarray(first, np.float64), np.asarray(second, np.float64)])
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # equal ones share the middle of theirs
    in_order = float(ranks[:a].sum()) - a * (a + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = a * b / 12 * (a + b + 1 - ties / ((a + b) * (a + b - 1)))
    if variance <= 0:  # all are equal
        return 1.0
    distance = max(0.0, abs(in_order - a * b / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))
