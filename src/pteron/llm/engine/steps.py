"""Work of an engine's sequences on the GPU: chunks of prompts, and steps of decoding, as submissions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pteron.llm.engine.track import Track
from pteron.llm.launching import Drawn, Launched, Launcher
from pteron.runtime.tensors import View

Arrived: TypeAlias = list[tuple[Track, list[Drawn]]]


class Submission(ABC):
    """Work under way for some tracks: `steps` of decoding of each, or none and a chunk of a prompt."""

    tracks: tuple[Track, ...]
    steps: int

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether `wait` would return at once, as far as one can tell."""

    @abstractmethod
    def wait(self) -> Arrived:
        """The tokens that it has drawn, if any, once it is done."""


class Stepper(ABC):
    """How the sequences of an engine go on.

    The engine's thread asks for submissions, keeps them in one queue and waits for them in that order. No
    part has more than one under way, or two while there is no other part: so the GPU has work while the host
    reads, and each part has its turn. What a stepper does:

    - `read` submits the next of a track's `chunks` and takes it off there; with the last one the first token
      is drawn, and `step` is 1, unless a grammar is to tell first what it may be.
    - `parts` says which of the tracks that were read may step now, and which of them together, by one
      submission; those that cannot step are in none. Tracks join and leave from one call to the next,
      also while submissions for them are under way.
    - `launch` submits up to `most` steps of a part, at least one, and adds them to each track's `step`.
    - `ahead` submits what a track can do while it is found out what may follow its last token by a grammar.

    None of them waits. What they raise ends the tracks that were given, and no others.
    """

    @abstractmethod
    def read(self, track: Track) -> Submission: ...

    @abstractmethod
    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]: ...

    @abstractmethod
    def launch(self, part: tuple[Track, ...], most: int) -> Submission: ...

    @abstractmethod
    def ahead(self, track: Track) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk(Submission):
    """A part of a prompt."""

    tracks: tuple[Track]
    number: int
    steps: int = 0

    def is_ready(self) -> bool:
        return False

    def wait(self) -> Arrived:
        device = self.tracks[0].model.device
        with device.lock:
            device.poll(wait=True, submission=self.number)
        return []


@dataclass(frozen=True, slots=True, eq=False)
class _Steps(Submission):
    """Steps of one track, or its prompt's last chunk, and the tokens that are drawn."""

    tracks: tuple[Track]
    steps: int
    launched: Launched

    def is_ready(self) -> bool:
        with self.tracks[0].model.device.lock:
            return self.launched.is_ready

    def wait(self) -> Arrived:
        (track,) = self.tracks
        with track.model.device.lock:
            return [(track, self.launched.read())]


class OneByOne(Stepper):
    """Each sequence steps by itself, and stays on the GPU from step to step."""

    def read(self, track: Track) -> Submission:
        launcher, chunk = _launcher(track), track.chunks.popleft()
        if track.chunks:
            return _Chunk((track,), launcher.read(chunk))
        if track.matcher:
            return _Chunk((track,), self._keep(track, chunk))
        launched = launcher.read_and_draw(chunk, track.step)
        track.step += 1
        return _Steps((track,), 0, launched)

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        return [(track,) for track in tracks if track.can_step]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        return self.go_on(part[0], most)

    def go_on(self, track: Track, most: int, token: View | None = None) -> Submission:
        """Steps of a track from the token on that it has drawn last, or from where that lies instead."""
        launcher, step = _launcher(track), track.step
        most = min(most, track.count - step)
        if track.matcher:
            track.sampler.allow(track.take_mask())
            most = 1
        if track.is_kept:
            track.is_kept = False
            launched = launcher.draw_kept(step)
        else:
            launched = launcher.go_on(step, most, token)
        track.step += launched.count
        return _Steps((track,), launched.count, launched)

    def ahead(self, track: Track) -> None:
        self._keep(track, track.drawn[-1:])

    def _keep(self, track: Track, tokens: list[int]) -> int:
        """Have tokens read; the next is drawn later. The submission's number."""
        number = _launcher(track).read_and_keep(tokens)
        track.is_kept = True
        return number


@dataclass(frozen=True, slots=True, eq=False)
class _Done(Submission):
    """What was waited for already."""

    tracks: tuple[Track]
    steps: int
    arrived: Arrived

    def is_ready(self) -> bool:
        return True

    def wait(self) -> Arrived:
        return self.arrived


class ThroughHost(Stepper):
    """Each sequence steps by itself, its logits through the host: right for every program. The exception from
    not waiting: its programs leave no choice."""

    def __init__(self) -> None:
        self._logits: WeakKeyDictionary[Track, npt.NDArray[np.float32]] = WeakKeyDictionary()  # to draw from

    def read(self, track: Track) -> Submission:
        logits = track.model.read(track.chunks.popleft(), track.user)
        if track.matcher and not track.chunks:
            self._logits[track] = logits
        if track.matcher or track.chunks:
            return _Done((track,), 0, [])
        return _Done((track,), 0, [(track, [self._draw(track, logits)])])

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        return [(track,) for track in tracks if track.can_step and track.step == len(track.drawn)]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        (track,) = part
        logits = self._logits.pop(track, None)
        if logits is None:
            logits = track.model.read(track.drawn[-1:], track.user)
        return _Done((track,), 1, [(track, [self._draw(track, logits)])])

    def ahead(self, track: Track) -> None:
        pass

    def _draw(self, track: Track, logits: npt.NDArray[np.float32]) -> Drawn:
        if track.matcher:
            track.sampler.allow(track.take_mask())
        drawn = _launcher(track).draw(logits, track.step)
        track.step += 1
        return drawn


def _launcher(track: Track) -> Launcher:
    return Launcher(track.model, track.sampler, track.user)
