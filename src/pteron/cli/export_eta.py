"""ExportEta: how long an export still takes, from what its stages took on this machine before.

The usual times of stages (llm/export/cost.py) are those of another machine, so only their ratios are used.
The cache folder keeps, for each stage, its time on this machine as a multiple of the usual one. Nothing is
estimated until a part of the export, or of an earlier one, has been measured. What is shown moves slowly
from one estimate to the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.folders import cache_folder, replace_file

if TYPE_CHECKING:
    from pteron.llm.export.cost import Stage

_MEASURED = 0.2  # of an export's usual time: if less is measured, the machine's pace is not known
_DOUBT = 0.2  # weight of the earlier pace against this export's, as a part of the whole export
_RATIO_MAX = 3.0  # how much slower or faster a stage can make those after it: a cold disk says little
_OVERRUN = 0.5  # a stage that is late by t is expected to take another 0.5 t
_SMOOTHING = 15.0  # seconds after which a new estimate is shown, to two thirds
_SLOWNESS_MAX = 100.0  # more than this is not a pace: the machine slept


class ExportEta:
    """The time that an export still takes. `slowness` is the duration of each stage on this machine, as a
    multiple of the usual one; it is updated as stages end."""

    def __init__(self, slowness: dict[str, float] | None = None) -> None:
        self.slowness = dict(slowness or {})
        self._learned = dict(self.slowness)  # from earlier exports
        self._usual: dict[str, float] = {}  # seconds of each stage of this export
        self._took: dict[str, float] = {}  # of the stages that are done
        self._stage: Stage | None = None
        self._began = self._entered = 0.0
        self._shown: tuple[float, float] | None = None  # seconds left, and when
        self._share = 0.0

    def enter(self, stage: Stage, now: float) -> None:
        """Begin a stage, and end the one before."""
        if not self._usual:
            self._began = now
        self.leave(now)
        self._stage, self._entered, self._usual = stage, now, stage.usual

    def leave(self, now: float) -> None:
        if self._stage is None:
            return
        name, took = str(self._stage), now - self._entered
        self._took[name] = took
        measured = min(took / self._usual[name], _SLOWNESS_MAX)
        self.slowness[name] = (self._learned.get(name, measured) + measured) / 2  # one busy day counts half
        self._stage = None

    def remaining(self, now: float) -> float | None:
        """Seconds until the export is done, smoothed; None while they are not known."""
        estimate = self._estimate(now)
        if estimate is None:
            return None
        if self._shown is None:
            self._shown = estimate, now
        shown, before = self._shown
        passed = now - before
        shown = max(shown - passed, 0.0)
        shown += (estimate - shown) * (1 - math.exp(-passed / _SMOOTHING))
        self._shown = shown, now
        return shown

    def share(self, now: float) -> float:
        """How much is done, from 0 to 1; it never shrinks."""
        remaining = self.remaining(now)
        if remaining is not None:
            elapsed = now - self._began
            share = elapsed / max(elapsed + remaining, 1e-3)
        else:
            share = self._usual_seconds(self._took) / max(self._usual_seconds(self._usual), 1e-3)
        self._share = max(self._share, share)
        return self._share

    def _estimate(self, now: float) -> float | None:
        expected = self._expected()
        if self._stage is None or expected is None:
            return None
        name, elapsed = str(self._stage), now - self._entered
        doubt = _DOUBT * sum(expected.values())
        done, took = doubt, doubt
        for each in self._took.keys() & self._learned.keys():
            done += expected[each]
            least, most = expected[each] / _RATIO_MAX, expected[each] * _RATIO_MAX
            took += min(max(self._took[each], least), most)
        pace = took / done
        late = elapsed - pace * expected[name]
        if late > 0:  # the later stages will be slow as well
            pace += min(late, (_RATIO_MAX - 1) * expected[name]) / (done + expected[name])
        names = list(self._usual)
        later = sum(expected[each] for each in names[names.index(name) + 1 :])
        return max(-late, _OVERRUN * late) + pace * later

    def _expected(self) -> dict[str, float] | None:
        """The seconds of each stage here: as in earlier exports, or at the pace of the stages that are known.
        None: too little is known."""
        taken = {name: took / self._usual[name] for name, took in self._took.items()}
        known = {**taken, **{name: self._learned[name] for name in self._usual if name in self._learned}}
        seconds = self._usual_seconds(known)
        if not seconds or seconds < _MEASURED * self._usual_seconds(self._usual):
            return None
        typical = sum(self._usual[name] * slowness for name, slowness in known.items()) / seconds
        return {name: usual * known.get(name, typical) for name, usual in self._usual.items()}

    def _usual_seconds(self, names: Container[str]) -> float:
        return sum(seconds for name, seconds in self._usual.items() if name in names)


def load_slowness() -> dict[str, float]:
    """The slowness of each stage in earlier exports; empty without one, or where the file is damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(_slowness_file().read_text("utf-8"))
        return {str(name): min(max(float(value), 0.01), _SLOWNESS_MAX) for name, value in found.items()}
    return {}


def save_slowness(slowness: dict[str, float]) -> None:
    with suppress(OSError):
        replace_file(_slowness_file(), json.dumps(slowness).encode())


def _slowness_file() -> Path:
    return cache_folder() / "export_stages.json"
