"""Benchmark results (samples of seconds by workload and device), their JSON files, the cases that became
slower or faster beyond noise and a tolerance, and both as lines.

Samples taken shortly after each other are not independent, but rounds are, between which all other cases ran:
the median of every new round must be above (or below) that of every old round. Of five and five equal rounds,
one of 126 pairs is so by chance. If the control of the device became slower too, a case counts as slower only
if its ratio is larger than the control's.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pteron.errors import InputError
from pteron.format.source import open_file
from pteron.tools.text import Line, Style, columns, counted, html_text, human_time

PERCENTILES = (50, 90, 95, 99)
CONTROL = "control: small copies, each waited for"  # measures the machine itself
_VERSION = 1
ROUNDS = 5  # with fewer, false alarms are too frequent
SAMPLES_MIN = 8  # of each case, to judge it
_STYLES: dict[str, Style] = {"slower": "bad", "faster": "good"}


@dataclass(frozen=True, slots=True)
class Case:
    """The samples of one workload on one device. A sample is the seconds of one run of `amount` calls or
    tokens."""

    program: str
    what: str
    inputs: tuple[str, ...]
    device: str
    unit: str  # "call" or "token"
    amount: int
    rounds: int  # with equally many samples each; the other cases ran in between
    samples: tuple[float, ...]

    @property
    def round_medians(self) -> list[float]:
        return [float(np.median(part)) for part in np.array_split(self.samples, self.rounds)]

    @property
    def name(self) -> str:
        given = f" ({', '.join(self.inputs)})" if self.inputs else ""
        return f"{self.program}, {self.what}{given}" if self.program else self.what

    @property
    def key(self) -> tuple[object, ...]:
        """Cases with equal keys are comparable."""
        return self.program, self.what, self.inputs, self.device, self.unit, self.amount

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.samples, percent))

    @property
    def rate(self) -> float:
        """Calls or tokens per second, by the median."""
        return self.amount / self.percentile(50)


@dataclass(frozen=True, slots=True)
class Bench:
    cases: tuple[Case, ...]

    def _repr_html_(self) -> str:
        return html_text(bench_lines(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        content = {"pteron_bench": _VERSION, "cases": [asdict(case) for case in self.cases]}
        Path(path).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Bench:
        """The content of a file that `save` wrote; an InputError for any other file."""
        open_file(path).close()  # a clear message for missing files and folders
        try:
            content = json.loads(Path(path).read_text("utf-8"))
            if content["pteron_bench"] != _VERSION:
                raise ValueError(f"its version is {content['pteron_bench']}, expected {_VERSION}")
            return cls(tuple(map(_case, content["cases"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{path} is not a result of `pteron bench`: {problem}") from None


def _case(content: dict[str, Any]) -> Case:
    samples = tuple(float(sample) for sample in content["samples"])
    if not samples or not all(np.isfinite(samples)) or min(samples) <= 0:
        raise ValueError(f"case {content['what']!r} has no samples that are times")
    amount, rounds = int(content["amount"]), int(content["rounds"])
    if amount < 1 or not 1 <= rounds <= len(samples):
        raise ValueError(f"case {content['what']!r} has {len(samples)} samples in {rounds} rounds")
    texts = {name: str(content[name]) for name in ("program", "what", "device", "unit")}
    inputs = tuple(map(str, content["inputs"]))
    return Case(**texts, inputs=inputs, amount=amount, rounds=rounds, samples=samples)


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """A case before and now. `ratio` is that of the medians, above 1 if slower now; `lowest` and `highest`
    are those of any two rounds."""

    old: Case
    new: Case
    ratio: float
    lowest: float
    highest: float
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
        measured = "; ".join(f"{case.name} on {case.device}" for case in (*old.cases[:1], *new.cases[:1]))
        same = {case.name for case in old.cases if case.what != CONTROL} & {case.name for case in new.cases}
        why = "were measured on different adapters, WebGPU libraries or precisions, which are not compared"
        raise InputError(f"the two results {why if same else 'have no case in common'}: {measured}")
    compared = [_compare(before[key], after[key], tolerance) for key in shared]
    only_old = tuple(f"{case.name} on {case.device}" for key, case in before.items() if key not in after)
    only_new = tuple(f"{case.name} on {case.device}" for key, case in after.items() if key not in before)
    judged = tuple(_beside_control(each, compared, tolerance) for each in compared)
    return Judgement(judged, only_old, only_new)


def _compare(old: Case, new: Case, tolerance: float) -> CaseComparison:
    ratio = new.percentile(50) / old.percentile(50)
    before, now = old.round_medians, new.round_medians
    lowest, highest = min(now) / max(before), max(now) / min(before)
    if min(len(old.samples), len(new.samples)) < SAMPLES_MIN or min(old.rounds, new.rounds) < ROUNDS:
        verdict = "too few samples"
    elif 1 / (1 + tolerance) <= ratio <= 1 + tolerance:
        verdict = "same"
    elif lowest > 1:
        verdict = "slower"
    else:
        verdict = "faster" if highest < 1 else "noise"
    return CaseComparison(old, new, ratio, lowest, highest, verdict)


def _beside_control(
    each: CaseComparison, compared: Sequence[CaseComparison], tolerance: float
) -> CaseComparison:
    """Reject a slowdown that is no larger than that of the device's control."""
    controls = (other for other in compared if other.new.what == CONTROL)
    slowdown = max([1.0, *(other.ratio for other in controls if other.new.device == each.new.device)])
    is_own = each.new.what == CONTROL or each.ratio > slowdown * (1 + tolerance)
    return each if each.verdict != "slower" or is_own else replace(each, verdict="as slow as the machine")


def bench_lines(bench: Bench) -> Iterator[str]:
    """One row per case; the same workload on several devices in adjacent rows, with the speed relative to
    the first."""
    devices = list(dict.fromkeys(case.device for case in bench.cases))
    by_workload: dict[object, list[Case]] = {}
    for case in bench.cases:
        by_workload.setdefault((case.program, case.what, case.inputs), []).append(case)
    yield from _numbered(devices)
    heading = ["", "on", *(f"p{percent}" for percent in PERCENTILES), "min", "mean", "samples", "per second"]
    rows = [heading]
    for cases in by_workload.values():
        for case in cases:
            rows.append(
                [
                    case.name if case is cases[0] else "",
                    str(devices.index(case.device)),
                    *(human_time(case.percentile(percent)) for percent in PERCENTILES),
                    human_time(min(case.samples)),
                    human_time(float(np.mean(case.samples))),
                    str(len(case.samples)),
                    f"{case.rate:,.4g} {case.unit}s",
                ]
            )
            if len(devices) > 1:
                rows[-1].append(f"{cases[0].percentile(50) / case.percentile(50):.2f} x")
    if len(devices) > 1:
        heading.append("speed vs 0")
    yield from columns(rows, align="<" + ">" * (len(heading) - 1))


def judgement_lines(judgement: Judgement, tolerance: float) -> Iterator[str]:
    """Each case before and now, then the summary."""
    devices = list(dict.fromkeys(each.new.device for each in judgement.comparisons))
    yield from _numbered(devices)
    rows = [["", "on", "before", "now", "ratio", "of rounds", "verdict"]]
    for each in judgement.comparisons:
        rows.append(
            [
                each.new.name,
                str(devices.index(each.new.device)),
                human_time(each.old.percentile(50)),
                human_time(each.new.percentile(50)),
                f"{each.ratio:.3f}",
                f"{each.lowest:.2f} to {each.highest:.2f}",
                Line(each.verdict, _STYLES.get(each.verdict, "")),
            ]
        )
    yield from columns(rows, align="<>>>>>")
    for names, where in ((judgement.only_old, "before"), (judgement.only_new, "now")):
        yield from (f"only {where}: {name}" for name in names)
    cases = [each for each in judgement.comparisons if each.new.what != CONTROL]
    slower = sum(each.verdict == "slower" for each in cases)
    yield ""
    yield Line(
        f"{slower or 'none'} of {counted(len(cases), 'case')} slower beyond noise and {tolerance:.0%}",
        "bad" if slower else "good",
    )


def _numbered(devices: list[str]) -> Iterator[str]:
    yield from (Line(f"{index}: {device}", "title") for index, device in enumerate(devices))
    yield ""
