"""The results of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pteron.tools.accuracy import Errors
from pteron.tools.text import Line, columns, counted, html_text, human_time

ROWS = 20  # default length of the table
_HEADINGS = ("node", "operator", "output", "max", "mean", "relative", "cosine", "ULP", "of tolerance", "")
_NAMES_SHOWN = 3  # of nodes that were not checked, before the rest is counted


class Verdict(Enum):
    WITHIN = "within"  # within tolerance of its reference
    DEPARTS = "departs"
    UNCHECKED = "unchecked"  # no reference; `reason` says why
    IDLE = "idle"  # no kernel ran: a constant of the file, or a live integer on the host

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class NodeResult:
    """An output of one node, or of several nodes that ran as one."""

    call: str  # "prefill", "decode at 3"; empty if there is only one call
    delegate: int
    nodes: tuple[int, ...]
    operators: tuple[str, ...]  # of the nodes
    ran: str  # the operator that ran, possibly made by a rewrite
    output: str  # "%17 f32[1, 5, 64]"
    verdict: Verdict
    errors: Errors | None = None
    reason: str = ""  # why it was not checked, or how it departs
    rewrite: str = ""  # the rewrite or join that made it, if these are compared
    kernels: tuple[str, ...] = ()  # that ran

    @property
    def where(self) -> str:
        """The nodes for tables: 7, 3-5, 6-15+17."""
        runs: list[list[int]] = []
        for node in self.nodes:
            if runs and node == runs[-1][-1] + 1:
                runs[-1].append(node)
            else:
                runs.append([node])
        return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All results in the order in which nodes ran, and a summary."""

    program: str
    method: str
    adapter: str
    reference: str
    rows: tuple[NodeResult, ...]
    nodes: int  # of the delegates that ran
    checked: int  # nodes with all outputs compared
    idle: int  # nodes that ran no kernel and were not compared
    unchecked: Mapping[str, str]  # "node 3 aten.foo.default": why it was not checked
    host_operators: Mapping[str, int]  # outside the delegates, not checked
    culprit: str | None  # the node that the first departure comes from, in words
    saved: str | None  # the folder of the first departure
    seconds: float

    @property
    def departures(self) -> tuple[NodeResult, ...]:
        return tuple(row for row in self.rows if row.verdict is Verdict.DEPARTS)

    @property
    def first(self) -> NodeResult | None:
        return next(iter(self.departures), None)

    @property
    def is_right(self) -> bool:
        """Whether outputs were checked and none departs."""
        verdicts = {row.verdict for row in self.rows}
        return Verdict.DEPARTS not in verdicts and (Verdict.WITHIN in verdicts or not verdicts)

    def _repr_html_(self) -> str:
        return html_text(compare_lines(self))


def compare_lines(report: Comparison, *, in_order: bool = False, rows: int | None = ROWS) -> Iterator[str]:
    """The worst results first, or in the order in which nodes ran; at most `rows` (None: all)."""
    title = f"{report.program}, {report.method}, on {report.adapter}, compared with {report.reference}"
    yield Line(title, "title")
    yield ""
    yield from _departure(report)
    ordered = list(report.rows) if in_order else sorted(report.rows, key=_severity, reverse=True)
    reported = [row for row in ordered if row.verdict is not Verdict.IDLE]
    if any(row.rewrite for row in reported):
        yield from _by_rewrite(reported)
        yield ""
        reported = [row for row in reported if rows is None or row.verdict is not Verdict.WITHIN]
    shown = reported[:rows]
    if shown:
        yield from _table(shown)
        if len(reported) > len(shown):
            yield Line(f"  … and {counted(len(reported) - len(shown), 'row')} more (use --all)", "note")
        yield ""
    yield from _counts(report)


def _departure(report: Comparison) -> Iterator[str]:
    first = report.first
    if first is None:
        return
    call = f"{first.call}, " if first.call else ""
    delegate = f"delegate {first.delegate}, " if first.delegate else ""
    noun = "node" if len(first.nodes) == 1 else "nodes"
    where = f"{call}{delegate}{noun} {first.where}, {_operator(first)}, {first.output}"
    yield Line(f"first departure: {where}", "bad")
    yield f"  {first.reason}"
    if first.errors:
        largest, relative = first.errors.max_abs, first.errors.relative
        yield f"  the largest difference is {largest:.3g}, {relative:.2g} of the largest expected value"
    if report.culprit:
        yield f"  from {report.culprit}"
    if report.saved:
        yield f"  saved to {report.saved}: replay.py there runs it again"
    yield ""


def _by_rewrite(rows: Sequence[NodeResult]) -> Iterator[str]:
    """The number of outputs of each rewrite or join, and its worst error."""
    lines = [["rewrite", "outputs", "departing", "worst of tolerance"]]
    for name in dict.fromkeys(row.rewrite for row in rows):
        made = [row for row in rows if row.rewrite == name]
        departing = sum(row.verdict is Verdict.DEPARTS for row in made)
        worst = max((row.errors.of_tolerance for row in made if row.errors), default=0.0)
        lines.append([name, str(len(made)), str(departing), _times(worst)])
    yield from columns(lines, indent=2, align="<>>>")


def _times(of_tolerance: float) -> str:
    return f"{of_tolerance:.1%}" if of_tolerance < 10 else f"{of_tolerance:.2g}x"


def _table(rows: Sequence[NodeResult]) -> Iterator[str]:
    extra = [name for name in ("call", "rewrite") if any(getattr(row, name) for row in rows)]
    has_delegates = any(row.delegate for row in rows)
    lines = [[*extra, *_HEADINGS]]
    for row in rows:
        where = f"{row.delegate}: {row.where}" if has_delegates else row.where
        before = [getattr(row, name) for name in extra]
        lines.append([*before, where, _operator(row), row.output, *_figures(row)])
    yield from columns(lines, indent=2, align="<" * (len(extra) + 3) + ">" * 6)


def _figures(row: NodeResult) -> list[str]:
    if row.errors is None:
        exact = ["0"] * 3 + ["1", "0", "0"] if row.verdict is Verdict.WITHIN else [""] * 6
        return [*exact, _verdict(row)]
    errors = row.errors
    return [
        f"{errors.max_abs:.2g}",
        f"{errors.mean_abs:.2g}",
        f"{errors.relative:.2g}",
        f"{errors.cosine:.7f}",
        f"{errors.ulp:,.1f}" if errors.ulp < 1e6 else f"{errors.ulp:.1e}",
        _times(errors.of_tolerance),
        _verdict(row),
    ]


def _verdict(row: NodeResult) -> str:
    if row.verdict is Verdict.UNCHECKED:
        return f"not checked: {row.reason}"
    return Line("departs", "bad") if row.verdict is Verdict.DEPARTS else ""


def _operator(row: NodeResult) -> str:
    name = row.ran or ", ".join(row.operators)
    return name if len(name) <= 48 else f"{name[:45]}…"


def _severity(row: NodeResult) -> tuple[int, float]:
    order = [Verdict.IDLE, Verdict.WITHIN, Verdict.UNCHECKED, Verdict.DEPARTS]
    return order.index(row.verdict), row.errors.of_tolerance if row.errors else 0.0


def _counts(report: Comparison) -> Iterator[str]:
    """How many nodes were checked, and which were not."""
    departing = {(row.delegate, row.nodes) for row in report.departures}
    if report.reference == "rewrites" and not report.rows:
        yield "no rewrite or join applies to this program: nothing to compare"
    else:
        yield Line(_nodes(report, len(departing)), "bad" if departing else "good")
    for node, reason in list(report.unchecked.items())[:_NAMES_SHOWN]:
        yield f"  not checked: {node}: {reason}"
    if len(report.unchecked) > _NAMES_SHOWN:
        more = counted(len(report.unchecked) - _NAMES_SHOWN, "node")
        yield f"  not checked: {more} more (--json lists all)"
    if report.host_operators:
        listed = ", ".join(f"{count}x {name}" for name, count in report.host_operators.items())
        yield f"  not checked, on the host: {listed}"


def _nodes(report: Comparison, departing: int) -> str:
    verdict = counted(departing, "departure") if departing else "no departures"
    parts = [f"{report.checked} of {counted(report.nodes, 'node')} checked, {verdict}"]
    if report.idle:
        parts.append(f"{report.idle} ran no kernel (constants, live integers)")
    if report.unchecked:
        parts.append(f"{counted(len(report.unchecked), 'node')} not checked")
    if report.reference == "rewrites":
        same = report.nodes - report.checked - report.idle - len(report.unchecked)
        parts.append(f"{same} not affected by rewrites")
    return f"{'; '.join(parts)}; {human_time(report.seconds)}"
