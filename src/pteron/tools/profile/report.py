"""The data of a profile, all times in seconds; its launches in groups; its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from pteron.errors import InputError
from pteron.tools.text import Line, columns, counted, html_text, human_bytes, human_time

OUTSIDE = "outside the layers"
DRAW = "draw"  # launches of the sampler, which belong to no node
_ROWS_SHOWN = 15  # nodes in a notebook, the longest first
TIMINGS = {
    "stamps": "timed by GPU timestamps between the launches of one pass",
    "passes": "timed by GPU timestamps, one pass per launch",
    "wall": "timed by the host's clock, repeating each launch",
}
_LEAST = 1e-8  # seconds: less is rounding
_HEADINGS = ("launches", "time", "share", "bytes", "GB/s", "GFLOP/s", "of ceiling")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The highest measured rates of an adapter: bytes read and written per second, and f32 operations per
    second, where a multiply-add counts as two."""

    bytes_per_second: float
    operations_per_second: float

    def least_seconds(self, moved: int, operations: float | None) -> float:
        return max(moved / self.bytes_per_second, (operations or 0) / self.operations_per_second)


@dataclass(frozen=True, slots=True)
class LaunchTime:
    index: int  # among all launches of the call
    delegate: int | None  # None: a launch of the sampler, after the graphs
    node: int  # of that delegate's graph
    nodes: tuple[int, ...]  # all nodes whose work it does
    operator: str  # the one with most of the work
    family: str
    kernel: str
    layer: int | None  # None: outside the repeated layers
    groups: tuple[int, int, int]
    seconds: float
    stamped_seconds: float  # as measured, with the cost of timestamps
    bytes_read: int
    bytes_written: int
    operations: float | None  # of matrix products, convolutions and attention, else None

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the host, done once or at every call."""

    name: str
    seconds: float
    is_once: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a call goes.

    `pass_seconds` is the GPU's time for all launches in one pass without timestamps in between. The times of
    the launches add up to `launch_seconds`, which is scaled down to the pass if it is longer.
    `paired_seconds` is their sum before that: its distance from the pass shows how reliable the times of
    single launches are."""

    program: str
    method: str
    what: str
    device: str
    inputs: tuple[str, ...]
    runs: int
    timing: str  # "stamps", "passes" or "wall"
    launches: tuple[LaunchTime, ...]
    stamp_seconds: float  # cost of timestamps per launch, already subtracted
    paired_seconds: float  # sum of the launches before they are fitted to the pass
    pass_seconds: float
    call_seconds: float  # host time of a whole call, until its outputs are read
    stages: tuple[Stage, ...]
    layers: int  # repeated layers of the graphs; 0: none found
    ceilings: Ceilings | None

    @property
    def launch_seconds(self) -> float:
        return sum(launch.seconds for launch in self.launches)

    def _repr_html_(self) -> str:
        return html_text(profile_lines(self, top=_ROWS_SHOWN))


# What launches of one group have in common.
GROUP_KEYS: dict[str, Callable[[LaunchTime], object]] = {
    "launch": attrgetter("index"),
    "node": attrgetter("delegate", "node"),
    "operator": attrgetter("operator"),
    "family": attrgetter("family"),
    "layer": attrgetter("layer"),
    "kernel": attrgetter("kernel"),
}


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    name: str
    launches: tuple[LaunchTime, ...]
    seconds: float
    share: float  # of all launches
    bytes: int
    operations: float | None
    fraction: float | None  # of the adapter's ceilings

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes / self.seconds if self.seconds else None

    @property
    def operations_per_second(self) -> float | None:
        return self.operations / self.seconds if self.operations and self.seconds else None


def group_launches(profile: Profile, by: str = "node") -> list[LaunchGroup]:
    """The groups in the order of their first launches."""
    if by not in GROUP_KEYS:
        raise InputError(f"launches are grouped by {', '.join(GROUP_KEYS)}, not by {by!r}")
    groups: dict[object, list[LaunchTime]] = {}
    for launch in profile.launches:
        groups.setdefault(GROUP_KEYS[by](launch), []).append(launch)
    has_several = len({launch.delegate for launch in profile.launches} - {None}) > 1
    return [_group(_name(launches, by, has_several), launches, profile) for launches in groups.values()]


def _name(launches: Sequence[LaunchTime], by: str, has_several: bool) -> str:
    first = launches[0]
    if by == "launch":
        return f"{first.index} {first.operator} by {first.kernel}"
    if by == "node":
        if first.delegate is None:
            return f"{DRAW} {first.operator}"
        leading = max(launches, key=lambda launch: launch.seconds).operator
        nodes = sorted({node for launch in launches for node in launch.nodes} | {first.node})
        graph = f"{first.delegate}:" if has_several else ""  # nodes are numbered within a graph
        return f"{graph}{nodes[0]}{f'-{nodes[-1]}' if len(nodes) > 1 else ''} {leading}"
    if by == "layer":
        return OUTSIDE if first.layer is None else f"layer {first.layer}"
    return str(GROUP_KEYS[by](first))


def _group(name: str, launches: Sequence[LaunchTime], profile: Profile) -> LaunchGroup:
    seconds, ceilings = sum(launch.seconds for launch in launches), profile.ceilings
    known = [launch.operations for launch in launches if launch.operations is not None]
    least = sum(ceilings.least_seconds(each.bytes, each.operations) for each in launches) if ceilings else 0
    return LaunchGroup(
        name=name,
        launches=tuple(launches),
        seconds=seconds,
        share=seconds / profile.launch_seconds if profile.launch_seconds else 0.0,
        bytes=sum(launch.bytes for launch in launches),
        operations=sum(known) if known else None,
        fraction=least / seconds if ceilings and seconds else None,
    )


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
    apart = abs(profile.launch_seconds / whole - 1) if whole else 0.0
    yield (
        f"{counted(len(profile.launches), 'launch', 'launches')}: {human_time(profile.launch_seconds)} "
        f"in total, {human_time(whole)} in one pass (they differ by {apart:.0%}); "
        f"medians of the faster half of {counted(profile.runs, 'run')}"
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
