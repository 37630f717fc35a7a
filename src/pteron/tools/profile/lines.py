"""A profile as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.tools.profile.grouping import Row, grouped
from pteron.tools.profile.report import Ceilings, Profile
from pteron.tools.text import Line, columns, counted, human_bytes, human_time

TIMINGS = {
    "stamps": "by the adapter's timestamps between launches, all in one pass",
    "passes": "by the adapter's timestamps, each launch a pass of its own",
    "wall": "by the host's clock: the adapter offers no timestamps, so each launch was repeated",
}
_LEAST = 1e-8  # seconds: less is how sums were rounded
_HEADINGS = ("", "launches", "time", "share", "bytes", "GB/s", "GFLOP/s", "of ceiling")


def profile_lines(profile: Profile, by: str = "node", top: int | None = None) -> Iterator[str]:
    """What was run, the rows (the `top` longest, where that is given), the sum beside the pass, the host."""
    yield Line(f"{profile.program}, {profile.what} ({', '.join(profile.inputs)})", "title")
    yield f"on {profile.device}, {TIMINGS[profile.timing]}"
    if profile.ceilings:
        yield f"ceilings: {_ceilings(profile.ceilings)}"
    yield ""
    rows = grouped(profile, by)
    shown = sorted(rows, key=lambda row: -row.seconds)[:top] if top else rows
    table = [(by, *_HEADINGS[1:]), *map(_cells, shown)]
    if len(shown) < len(rows):
        rest = sum(row.seconds for row in rows) - sum(row.seconds for row in shown)
        table.append((f"{len(rows) - len(shown)} more", "", human_time(rest), *[""] * 5))
    yield from columns(table, align="<>>>>>>>")
    yield ""
    yield _sum(profile)
    yield from (Line(each, "note") for each in notes(profile))
    if by == "layer" and not profile.layers:
        yield "nothing in the graph repeats, so it has no layers"
    yield ""
    yield from columns(_stage_rows(profile), align="<>")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        str(len(row.launches)),
        human_time(row.seconds),
        f"{row.share:.1%}",
        human_bytes(row.bytes),
        _giga(row.bytes_per_second),
        _giga(row.operations_per_second),
        "" if row.fraction is None else f"{row.fraction:.0%}",
    )


def _sum(profile: Profile) -> str:
    whole = profile.pass_seconds
    apart = profile.launch_seconds / whole - 1 if whole else 0.0
    return (
        f"{counted(len(profile.launches), 'launch', 'launches')} add up to "
        f"{human_time(profile.launch_seconds)}; one pass of all takes {human_time(whole)} "
        f"({apart:+.0%}); medians of the quicker half of {counted(profile.runs, 'run')}"
    )


def notes(profile: Profile) -> Iterator[str]:
    """What to know of the launches' times."""
    if profile.timing != "wall":
        count = max(1, len(profile.launches))
        alike = (profile.paired_seconds - profile.launch_seconds) / count
        rest = f", {human_time(alike)} of it alike from all to add up to the pass" if alike > _LEAST else ""
        yield f"stamps cost {human_time(profile.stamp_seconds)} a launch, taken off{rest}"
    drawing = sum(launch.delegate is None for launch in profile.launches)
    if drawing:
        last = "launch draws" if drawing == 1 else f"{drawing} launches draw"
        yield f"the last {last} the next token, as a step of generation does"


def _stage_rows(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "a call, waited for", human_time(profile.call_seconds)
    yield "host, at every call", ""
    yield from (
        (f"  {stage.name}", human_time(stage.seconds)) for stage in profile.stages if not stage.is_once
    )
    yield "host, once", ""
    yield from ((f"  {stage.name}", human_time(stage.seconds)) for stage in profile.stages if stage.is_once)


def _ceilings(ceilings: Ceilings) -> str:
    return (
        f"{_giga(ceilings.bytes_per_second)} GB/s copied, "
        f"{_giga(ceilings.operations_per_second)} GFLOP/s in f32"
    )


def _giga(rate: float | None) -> str:
    """In three digits, whatever its size."""
    if rate is None:
        return ""
    return f"{rate / 1e9:,.0f}" if rate >= 1e11 else f"{rate / 1e9:.3g}"
