"""Two benchmarks -> the cases that became slower or faster, beyond noise and a tolerance.

Samples are compared with the Mann-Whitney U test, which assumes no distribution but independent samples.
Samples taken shortly after each other are not independent, so in addition the median of every new round must
be above (or below) that of every old round. If the control of the device became slower too, a case counts as
slower only if its ratio is larger than the control's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pteron.errors import InputError
from pteron.tools.bench.report import CONTROL, Bench, Case

SIGNIFICANCE = 0.01  # rate of false alarms between equal programs
SAMPLES_MIN = 8  # of each case: with fewer, false alarms are too frequent


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """A case before and now. `ratio` is that of the medians, above 1 if slower now; `chance` is the p-value:
    how likely such samples are if nothing changed."""

    old: Case
    new: Case
    ratio: float
    chance: float
    verdict: str  # "slower", "faster", "same", "noise", "too few samples", or "as slow as the machine"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The cases of both benchmarks, and the names of those in only one."""

    comparisons: tuple[CaseComparison, ...]  # includes the controls
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        return any(each.verdict == "slower" for each in self.comparisons if each.new.what != CONTROL)


def judge(old: Bench, new: Bench, tolerance: float = 0.05) -> Judgement:
    """Compare the cases of both benchmarks. Medians may differ by `tolerance`, a fraction."""
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


def _compare(old: Case, new: Case, tolerance: float) -> CaseComparison:
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
    return CaseComparison(old, new, ratio, chance, verdict)


def _beside_control(
    each: CaseComparison, compared: Sequence[CaseComparison], tolerance: float
) -> CaseComparison:
    """Reject a slowdown that is no larger than that of the device's control."""
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
    """The two-sided p-value of the Mann-Whitney U test, by the normal approximation with corrections for ties
    and continuity."""
    a, b = len(first), len(second)
    values = np.concatenate([np.asarray(first, np.float64), np.asarray(second, np.float64)])
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # ties share their middle rank
    in_order = float(ranks[:a].sum()) - a * (a + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = a * b / 12 * (a + b + 1 - ties / ((a + b) * (a + b - 1)))
    if variance <= 0:  # all samples are equal
        return 1.0
    distance = max(0.0, abs(in_order - a * b / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))
