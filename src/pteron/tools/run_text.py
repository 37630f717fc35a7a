"""The report of a run, or of bundled test cases, as lines."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from pteron.runtime import Counters
from pteron.tools.run import CaseReport, RunReport, ValueReport
from pteron.tools.text import Line, Style, columns, counted, human_bytes, human_time


def run_lines(report: RunReport) -> Iterator[str]:
    """Outputs first, then what ran where, then times."""
    yield Line(f"{report.program}, {report.method}{report.signature}", "title")
    rows = [_value_row("input", index, value) for index, value in enumerate(report.inputs)]
    rows += [_value_row("output", index, value) for index, value in enumerate(report.outputs)]
    yield from columns(rows, indent=2)
    yield ""
    yield from columns([*_place_rows(report), *_time_rows(report)], indent=2)


def check_lines(program: str, device: str, cases: Sequence[CaseReport]) -> Iterator[str]:
    """One line per test case, and how many passed."""
    yield Line(f"{program} on {device}", "title")
    yield from columns([[f"{case.method} {case.case}", _verdict(case)] for case in cases], indent=2)
    passed = sum(case.problem is None for case in cases)
    style: Style = "good" if passed == len(cases) else "bad"
    yield Line(f"{passed} of {counted(len(cases), 'test case')} passed", style)


def _verdict(case: CaseReport) -> str:
    if case.problem:
        return Line(case.problem, "bad")
    return f"ok, largest difference {case.largest_difference:.2g}"


def what_ran(counters: Counters) -> str:
    """What the GPU did in one call."""
    return (
        f"{counted(counters.dispatches, 'dispatch', 'dispatches')}, {counted(counters.plans, 'new plan')}, "
        f"{human_bytes(counters.bytes_uploaded)} up, {human_bytes(counters.bytes_read)} down"
    )


def _value_row(what: str, index: int, value: ValueReport) -> list[str]:
    return [f"{what} {index}", value.type, _content(value), f"({value.origin})" if value.origin else ""]


def _content(value: ValueReport) -> str:
    if value.values is not None:
        return _values(value.values)
    if value.minimum is None or value.maximum is None or value.mean is None:
        return "nothing but NaN" if value.not_a_number else "empty"
    text = f"min {value.minimum:.4g}  max {value.maximum:.4g}  mean {value.mean:.4g}"
    return f"{text}  NaN {value.not_a_number:,}" if value.not_a_number else text


def _values(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_values, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _place_rows(report: RunReport) -> Iterator[list[str]]:
    if report.delegate_calls:
        yield ["on the GPU", report.device or ""]
        yield ["", f"{counted(report.delegate_calls, 'delegate call')}: {what_ran(report.counters)}"]
        memory = [f"{human_bytes(size)} {kind}" for kind, size in report.gpu_bytes.items() if size]
        yield ["", f"memory: {', '.join(memory)}"]
    operators = [f"{count}x {name}" for name, count in report.host_operators.items()]
    yield ["on the host", ", ".join(operators) or "nothing"]


def _time_rows(report: RunReport) -> Iterator[list[str]]:
    yield ["load", human_time(report.load_seconds)]
    yield ["first call", human_time(report.first_seconds)]
    if report.repeat_seconds:
        median, best = statistics.median(report.repeat_seconds), min(report.repeat_seconds)
        repeats = counted(len(report.repeat_seconds), "call")
        yield ["then", f"{human_time(median)} (median of {repeats}, best {human_time(best)})"]
