"""The data of a profile; all times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The highest measured rates of an adapter: bytes read and written per second, and f32 operations per
    second, where a multiply-add counts as two."""

    bytes_per_second: float
    operations_per_second: float

    def least_seconds(self, moved: int, operations: float | None) -> float:
        """The least time for this many bytes and operations."""
        return max(moved / self.bytes_per_second, (operations or 0) / self.operations_per_second)


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """A launch: its time, its bytes and its operations."""

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
