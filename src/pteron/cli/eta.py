"""How long an export will still take: what its stages usually take, at the pace of those that are behind.

What they took is kept in the cache folder, so that the next export on this machine begins with it. All times
are in seconds.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.folders import cache_folder

if TYPE_CHECKING:
    from pteron.llm.export.cost import Stage

_TRUST = 10.0  # as if so long had been measured already: a stage of a moment tells little of the pace
_OVERRUN = 0.5  # a stage that is late will take this much longer than it is late, at any time
_SLOWNESS_MAX = 100.0  # beyond this it was no pace, but a machine that slept


class Estimate:
    """An export under way. `slowness` is what stages took on this machine, as multiples of the usual."""

    def __init__(self, slowness: dict[str, float] | None = None) -> None:
        self._slowness = dict(slowness or {})
        self._stage: Stage | None = None
        self._began = self._entered = 0.0
        self._expected_behind = self._took_behind = 0.0
        self._share = 0.0

    @property
    def slowness(self) -> dict[str, float]:
        """With the stages that are behind."""
        return self._slowness

    def enter(self, stage: Stage, now: float) -> None:
        """A stage begins, and the one before it is over."""
        if self._stage is None:
            self._began = now
        else:
            self.leave(now)
        self._stage, self._entered = stage, now

    def leave(self, now: float) -> None:
        """The stage is over."""
        if self._stage is not None:
            name, took = str(self._stage), now - self._entered
            self._expected_behind += self._expected(name)
            self._took_behind += took
            self._slowness[name] = min(took / self._stage.usual[name], _SLOWNESS_MAX)
            self._stage = None

    def left(self, now: float) -> float | None:
        """Until the export is done; None before its first stage."""
        if self._stage is None:
            return None
        name, passed = str(self._stage), now - self._entered
        pace = (self._took_behind + _TRUST) / (self._expected_behind + _TRUST)
        late = passed - pace * self._expected(name)
        if late > 0:  # then what is ahead will be, too
            pace += late / (self._expected_behind + self._expected(name) + _TRUST)
        names = list(self._stage.usual)
        ahead = sum(map(self._expected, names[names.index(name) + 1 :]))
        return max(-late, _OVERRUN * late) + pace * ahead

    def share(self, now: float) -> float:
        """What is done of all, from 0 to 1; it never shrinks."""
        left = self.left(now)
        if left is not None:
            passed = now - self._began
            self._share = max(self._share, passed / max(passed + left, 1e-3))
        return self._share

    def _expected(self, name: str) -> float:
        assert self._stage is not None
        return self._stage.usual[name] * self._slowness.get(name, 1.0)


def remembered() -> dict[str, float]:
    """What stages took in the last export here."""
    with suppress(OSError, ValueError, TypeError, AttributeError):  # there was none, or the file is no such
        found = json.loads(_file().read_text("utf-8"))
        return {str(name): min(max(float(times), 0.01), _SLOWNESS_MAX) for name, times in found.items()}
    return {}


def remember(slowness: dict[str, float]) -> None:
    """Keep it for the next one."""
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_text(json.dumps(slowness), "utf-8")


def _file() -> Path:
    return cache_folder() / "export_stages.json"
