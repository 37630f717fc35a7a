"""An estimate as lines."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.tools.estimate.estimates import CallEstimate, Estimate, GpuEstimate
from pteron.tools.text import Line, columns, human_bytes, human_time


def estimate_lines(report: Estimate) -> Iterator[str]:
    """Memory and work once for each kind of plan, then a row for each GPU."""
    yield Line(f"{report.program}, {report.method}: estimated from plans, not measured", "title")
    first = report.gpus[0]
    rows = [
        ["memory", f"{human_bytes(first.memory)}, {human_bytes(first.weights)} of it weights"],
        ["states", f"{human_bytes(first.states)} for each sequence"],
    ]
    rows += [[call.what, _work(call)] for call in first.calls]
    yield from columns(rows, indent=2)
    yield Line(f"  launches and bytes are those of plans for {first.gpu}", "note")
    yield ""
    heading = ["GPU", "fits", *(call.what for call in first.calls), "at least", "rates"]
    lines = [heading, *(_row(each) for each in report.gpus)]
    yield from columns(lines, indent=2, align="<<" + ">" * len(first.calls) + "><")


def _work(call: CallEstimate) -> str:
    arithmetic = f", {call.operations / 1e9:,.1f} GFLOP" if call.operations else ""
    return f"{call.launches} launches, {human_bytes(call.bytes)}{arithmetic}"


def _row(found: GpuEstimate) -> list[str]:
    fits = {None: "unknown", True: "yes", False: "no"}[found.fits]
    floors = " + ".join(human_time(call.floor_seconds) for call in found.calls)
    rates = "measured" if found.is_measured else "published"
    return [found.gpu, fits, *(_time(call) for call in found.calls), floors, rates]


def _time(call: CallEstimate) -> str:
    seconds = human_time(call.likely_seconds)
    return f"{call.tokens_per_second:,.0f} tokens/s" if call.tokens_per_second else seconds
