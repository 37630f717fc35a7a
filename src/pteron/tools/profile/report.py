"""The data of a profile, all times in seconds; its launches in groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from pteron.errors import InputError

OUTSIDE = "outside the layers"
DRAW = "draw"  # launches of the sampler, which belong to no node


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
