"""How long launches take on the GPU: by its own timestamps, or where it has none, by the host's clock."""

from __future__ import annotations

import time
from typing import Literal, Protocol, TypeAlias, get_args

from pteron.errors import InputError
from pteron.gpu import Device, Replay, StepTimer, submit

# "stamps": timestamps between the launches of one pass. "passes": of a pass for each launch. "wall": the
# host's time for many of each launch, less that for one. "auto": the first of these that the adapter can.
Timing: TypeAlias = Literal["auto", "stamps", "passes", "wall"]
_REPEATED_SECONDS = 4e-3  # of work in one submission, beside which the host's own time is small
_REPEATS_MAX = 64


class Clock(Protocol):
    """Runs replays and tells their times."""

    timing: str

    def whole(self, replay: Replay) -> float:
        """Seconds of all steps, as one pass."""

    def each(self, replay: Replay) -> list[float]:
        """Seconds of every step, in order."""

    def pairs(self, replay: Replay) -> list[float]:
        """Seconds of every step and the one behind it, as one; empty where nothing lies between steps that
        would keep them apart."""


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
        """Every other one at a time, first those that begin with the first step."""
        count = len(replay.steps)
        even = self._steps.run(replay, [*range(2, count, 2), count])[: count // 2]
        odd = self._steps.run(replay, [*range(1, count, 2), count])[1 : 1 + (count - 1) // 2]
        found = [0.0] * (count - 1)
        found[::2], found[1::2] = even, odd
        return found


class WallClock:
    """By the host's clock: what more of the same takes more. Every step runs behind those before it."""

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
    """The clock for replays of so many steps, by the way asked for."""
    if timing not in get_args(Timing):
        raise InputError(f"timing must be one of {', '.join(get_args(Timing))}, not {timing!r}")
    has_stamps = "timestamp-query" in device.adapter.features
    if timing == "wall" or (timing == "auto" and not has_stamps):
        return WallClock(device)
    inside = {"auto": None, "stamps": True, "passes": False}[timing]
    return StampClock(device, steps, inside=inside)
