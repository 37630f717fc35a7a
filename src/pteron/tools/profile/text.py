"""A profile -> lines, a page for a browser, or a trace for Perfetto and Chrome's tracing page.

The trace has a track for the host and one for the GPU, with every stage and launch once, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pteron.tools.html import build_page
from pteron.tools.profile.report import LaunchGroup, Profile, group_launches
from pteron.tools.text import Line, columns, counted, human_bytes, human_time, json_text

TIMINGS = {
    "stamps": "timed by GPU timestamps between the launches of one pass",
    "passes": "timed by GPU timestamps, one pass per launch",
    "wall": "timed by the host's clock, repeating each launch",
}
_LEAST = 1e-8  # seconds: less is rounding
_HEADINGS = ("launches", "time", "share", "bytes", "GB/s", "GFLOP/s", "of ceiling")
_HOST, _GPU = 1, 2  # threads of the one process in the trace


def profile_lines(profile: Profile, by: str = "node", top: int | None = None) -> Iterator[str]:
    """What ran, the groups (the `top` longest, or all), the sum of the launches, the host's stages."""
    yield Line(f"{profile.program}, {profile.what} ({', '.join(profile.inputs)})", "title")
    yield f"on {profile.device}, {TIMINGS[profile.timing]}"
    if profile.ceilings:
        moved, computed = profile.ceilings.bytes_per_second, profile.ceilings.operations_per_second
        yield f"ceilings: {_giga(moved)} GB/s copied, {_giga(computed)} GFLOP/s in f32"
    yield ""
    rows = group_launches(profile, by)
    shown = sorted(rows, key=lambda row: -row.seconds)[:top] if top else rows
    table = [(by, *_HEADINGS), *map(_cells, shown)]
    if len(shown) < len(rows):
        rest = sum(row.seconds for row in rows) - sum(row.seconds for row in shown)
        table.append((f"{len(rows) - len(shown)} more", "", human_time(rest), *[""] * 5))
    yield from columns(table, align="<>>>>>>>")
    yield ""
    whole = profile.pass_seconds
    apart = profile.launch_seconds / whole - 1 if whole else 0.0
    yield (
        f"{counted(len(profile.launches), 'launch', 'launches')}: {human_time(profile.launch_seconds)} "
        f"in total, {human_time(whole)} in one pass ({apart:+.0%}); medians of the faster half of "
        f"{counted(profile.runs, 'run')}"
    )
    yield from (Line(each, "note") for each in notes(profile))
    if by == "layer" and not profile.layers:
        yield "no layers found: nothing in the graph repeats"
    yield ""
    yield from columns(_stage_rows(profile), align="<>>")


def _cells(row: LaunchGroup) -> tuple[str, ...]:
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


def notes(profile: Profile) -> Iterator[str]:
    """How the times of the launches were corrected, and the sampler's launches."""
    if profile.timing != "wall":
        count = max(1, len(profile.launches))
        fitted = (profile.paired_seconds - profile.launch_seconds) / count
        rest = f" ({human_time(fitted)} of it to match the time of the whole pass)" if fitted > _LEAST else ""
        yield f"timestamps add {human_time(profile.stamp_seconds)} per launch, which is subtracted{rest}"
    drawing = sum(launch.delegate is None for launch in profile.launches)
    if drawing:
        last = "launch samples" if drawing == 1 else f"{drawing} launches sample"
        yield f"the last {last} the next token"


def _stage_rows(profile: Profile) -> Iterator[tuple[str, str, str]]:
    yield "whole call", human_time(profile.call_seconds), ""
    for when, is_once in (("at every call", False), ("once", True)):
        yield f"host, {when}", "", ""
        stages = (stage for stage in profile.stages if stage.is_once == is_once)
        whole = 0.0 if is_once else profile.call_seconds
        for stage in stages:
            share = f"{stage.seconds / whole:.1%}" if whole else ""
            yield f"  {stage.name}", human_time(stage.seconds), share


def _giga(rate: float | None) -> str:
    """A rate in units of 1e9, in three digits."""
    if rate is None:
        return ""
    return f"{rate / 1e9:,.0f}" if rate >= 1e11 else f"{rate / 1e9:.3g}"


def page_text(profile: Profile) -> str:
    texts = {"timing_text": TIMINGS[profile.timing], "notes": list(notes(profile))}
    data = json.loads(json_text(profile)) | texts
    title = f"{profile.program}, {profile.what} · Pteron"
    return build_page("pteron.tools.profile", title, data)


def trace_text(profile: Profile) -> str:
    return json.dumps({"traceEvents": list(_events(profile)), "displayTimeUnit": "ns"})


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    yield _name("process_name", 0, f"{profile.program}, {profile.what}")
    yield _name("thread_name", _HOST, "host")
    yield _name("thread_name", _GPU, profile.device)
    begin, begun = 0.0, 0.0
    for stage in profile.stages:
        if not stage.is_once:
            yield _event(stage.name, _HOST, begin, stage.seconds, {})
            begin += stage.seconds
            if stage.name == "submit":
                begun = begin  # the GPU starts here
    for launch in profile.launches:
        nodes = [] if launch.delegate is None else list(launch.nodes)
        arguments: dict[str, Any] = {"kernel": launch.kernel, "family": launch.family, "nodes": nodes}
        arguments |= {"layer": launch.layer, "workgroups": list(launch.groups)}
        arguments |= {"bytes": launch.bytes, "operations": launch.operations}
        yield _event(launch.operator, _GPU, begun, launch.seconds, arguments)
        begun += launch.seconds


def _event(name: str, thread: int, begin: float, seconds: float, arguments: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": begin * 1e6, "dur": seconds * 1e6}  # microseconds
    return {"name": name, "ph": "X", "pid": 1, "tid": thread, **times, "args": arguments}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
