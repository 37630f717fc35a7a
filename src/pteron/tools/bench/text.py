"""Benchmarks and their comparison as lines."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.tools.bench.regressions import Judgement
from pteron.tools.bench.report import CONTROL, PERCENTILES, Bench, Case
from pteron.tools.text import Line, Style, columns, counted, human_time

_STYLES: dict[str, Style] = {"slower": "bad", "faster": "good"}


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
                    human_time(case.least),
                    human_time(case.mean),
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
    rows = [["", "on", "before", "now", "ratio", "p-value", "verdict"]]
    for each in judgement.comparisons:
        rows.append(
            [
                each.new.name,
                str(devices.index(each.new.device)),
                human_time(each.old.percentile(50)),
                human_time(each.new.percentile(50)),
                f"{each.ratio:.3f}",
                f"{each.chance:.1g}",
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
