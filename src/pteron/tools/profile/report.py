"""What a profile is: plain data, all times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What an adapter reaches with kernels that do nothing else: bytes read and written in a second, and
    32-bit float operations, a multiply-add being two."""

    bytes_per_second: float
    operations_per_second: float

    def least_seconds(self, moved: int, operations: float | None) -> float:
        """The least time that so many bytes and operations take."""
        return max(moved / self.bytes_per_second, (operations or 0) / self.operations_per_second)


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """A dispatch: what it does, its time, the bytes and operations of its work."""

    index: int  # among all launches of the call
    delegate: int | None  # which graph of the method; None: it draws the next token, behind them
    node: int  # of that graph,
    nodes: tuple[int, ...]  # and all whose work it does
    operator: str  # the one of these that it does most of
    family: str
    kernel: str
    layer: int | None  # of those that the graph repeats
    groups: tuple[int, int, int]
    seconds: float
    stamped_seconds: float  # as measured, with timestamps around it
    bytes_read: int
    bytes_written: int
    operations: float | None  # of matrix products, convolutions and attention; None elsewhere

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Stage:
    """Something that the host does, once or at every call."""

    name: str
    seconds: float
    is_once: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a call goes. `pass_seconds` is the GPU's time for all launches in one pass without
    anything measured in between. The launches' own times add up to `launch_seconds`, which stamps leave no
    longer than the pass. `paired_seconds` is their sum before that: nothing makes it equal to the pass, so it
    shows how far to trust the times of single launches."""

    program: str
    method: str
    what: str
    device: str
    inputs: tuple[str, ...]
    runs: int
    timing: str  # how launches were timed: "stamps", "passes" or "wall"
    launches: tuple[LaunchTime, ...]
    stamp_seconds: float  # what timestamps cost, for each launch: it is taken off
    paired_seconds: float  # of all launches, where only what neighbours show of that is taken off
    pass_seconds: float
    call_seconds: float  # of the host for a call as a whole, until its outputs are there
    stages: tuple[Stage, ...]
    layers: int  # that the graphs repeat; 0 where they do not
    ceilings: Ceilings | None

    @property
    def launch_seconds(self) -> float:
        return sum(launch.seconds for launch in self.launches)
