"""Recorded launches -> their times on the GPU, by its timestamps or, without these, by the host's clock.

A timestamp waits for the launch before it, and the launch after it waits for the timestamp, so launches
neither overlap nor follow each other as closely as in a plain pass. The cost of a timestamp between two
launches is the time of both with it, less the time of both without it; half of it is subtracted from each.
What the sum of all launches still exceeds the whole pass by is subtracted from all of them equally."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, get_args

from pteron.errors import InputError
from pteron.gpu import Device, Replay, StepTimer, submit

# "stamps": timestamps between the launches of one pass. "passes": one pass per launch. "wall": the host's
# time for many repetitions of a launch, less that of one. "auto": the first that the adapter supports.
Timing: TypeAlias = Literal["auto", "stamps", "passes", "wall"]
_REPEATED_SECONDS = 4e-3  # of GPU work per submission, to make the host's time negligible
_REPEATS_MAX = 64


class Clock(Protocol):
    """Runs recorded steps and returns their times."""

    timing: str

    def whole(self, replay: Replay) -> float:
        """Seconds of all steps in one pass."""

    def each(self, replay: Replay) -> list[float]:
        """Seconds of every step, in order."""

    def pairs(self, replay: Replay) -> list[float]:
        """Seconds of every step together with the next one; empty if the clock needs no such correction."""


class StampClock:
    """By the GPU's timestamps."""

    def __init__(self, device: Device, steps: int, *, inside: bool | None = None) -> None:
        self._steps = StepTimer(device, max(1, steps), inside=inside)
        self.timing = "stamps" if self._steps.is_inside else "passes"

    def whole(self, replay: Replay) -> float:
        return sum(self._steps.run(replay, [len(replay.steps)]))

    def each(self, replay: Replay) -> list[float]:
        return self._steps.run(replay)

    def pairs(self, replay: Replay) -> list[float]:
        """One run for the pairs that start at even steps, one for the odd ones."""
        count = len(replay.steps)
        even = self._steps.run(replay, [*range(2, count, 2), count])[: count // 2]
        odd = self._steps.run(replay, [*range(1, count, 2), count])[1 : 1 + (count - 1) // 2]
        found = [0.0] * (count - 1)
        found[::2], found[1::2] = even, odd
        return found


class WallClock:
    """By the host's clock: the additional time of additional repetitions."""

    timing = "wall"

    def __init__(self, device: Device) -> None:
        self._device = device

    def whole(self, replay: Replay) -> float:
        return self._repeated(replay)

    def each(self, replay: Replay) -> list[float]:
        return [self._repeated(Replay([step], replay.kept)) for step in replay.steps]

    def pairs(self, replay: Replay) -> list[float]:
        return []

    def _repeated(self, replay: Replay) -> float:
        if not replay.steps:
            return 0.0
        once = self._seconds(replay, 1)
        count = int(min(_REPEATS_MAX, max(2, _REPEATED_SECONDS / once)))
        return max(0.0, self._seconds(replay, 1 + count) - min(once, self._seconds(replay, 1))) / count

    def _seconds(self, replay: Replay, count: int) -> float:
        self._device.wait()
        started = time.perf_counter()
        submit(self._device, [replay] * count)
        self._device.wait()
        return time.perf_counter() - started


def clock_of(device: Device, steps: int, timing: str = "auto") -> Clock:
    """The clock for up to this many steps."""
    if timing not in get_args(Timing):
        raise InputError(f"timing must be one of {', '.join(get_args(Timing))}, not {timing!r}")
    has_stamps = "timestamp-query" in device.adapter.features
    if timing == "wall" or (timing == "auto" and not has_stamps):
        return WallClock(device)
    inside = {"auto": None, "stamps": True, "passes": False}[timing]
    return StampClock(device, steps, inside=inside)


def subtract_stamp_cost(each: Sequence[float], pairs: Sequence[float]) -> list[float]:
    """The times of launches without the timestamps, from the times of each and of neighbouring pairs.

    A cost is clamped to the shorter launch of a pair, so that no time becomes negative.
    """
    found = list(each)
    for index, pair in enumerate(pairs):
        first, second = each[index], each[index + 1]
        cost = min(max(first + second - pair, 0.0), first, second)
        found[index] -= cost / 2
        found[index + 1] -= cost / 2
    return found


def fit_to_pass(each: Sequence[float], whole: float) -> list[float]:
    """Subtract an equal part from every launch, at most its own time, until the sum does not exceed the
    pass."""
    found = list(each)
    rest = sum(found) - whole
    for place, index in enumerate(sorted(range(len(found)), key=lambda index: each[index])):
        if rest <= 0:
            break
        taken = min(found[index], rest / (len(found) - place))  # the remaining launches share the rest
        found[index] -= taken
        rest -= taken
    return found
