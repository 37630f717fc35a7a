"""Work of an engine's sequences on the GPU: chunks of prompts, and steps of decoding, as submissions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
      is drawn, and `step` is 1.
    - `parts` says which of the tracks that were read may step now, and which of them together, by one
      submission; those that cannot step are in none. Tracks join and leave from one call to the next,
      also while submissions for them are under way.
    - `launch` submits up to `most` steps of a part, at least one, and adds them to each track's `step`.

    None of them waits. What they raise ends the tracks that were given, and no others.
    """

    @abstractmethod
    def read(self, track: Track) -> Submission: ...

    @abstractmethod
    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]: ...

    @abstractmethod
    def launch(self, part: tuple[Track, ...], most: int) -> Submission: ...


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
        chunk = track.chunks.popleft()
        if track.chunks:
            return _Chunk((track,), _launcher(track).read(chunk))
        return self._masked(track, chunk) if track.matcher else self._first(track, chunk)

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        return [(track,) for track in tracks if track.can_step]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        return self.go_on(part[0], most)

    def go_on(self, track: Track, most: int, token: View | None = None) -> Submission:
        """Steps of a track from the token on that it has drawn last, or from where that lies instead."""
        if track.matcher:
            return self._masked(track, [track.drawn[-1]])
        launched = _launcher(track).go_on(track.step, min(most, track.count - track.step), token)
        track.step += launched.count
        return _Steps((track,), launched.count, launched)

    def _first(self, track: Track, chunk: list[int]) -> Submission:
        launched = _launcher(track).read_and_draw(chunk, track.step)
        track.step += 1
        return _Steps((track,), 0, launched)

    def _masked(self, track: Track, tokens: list[int]) -> Submission:
        """One step that reads these tokens. What may follow them is found out while the GPU does."""
        launcher, step = _launcher(track), track.step
        assert track.matcher is not None
        launcher.read_and_keep(tokens)
        track.sampler.allow(track.matcher.mask())
        launched = launcher.draw_kept(step)
        track.step += 1
        return _Steps((track,), 1 if step else 0, launched)


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

    def read(self, track: Track) -> Submission:
        logits = track.model.read(track.chunks.popleft(), track.user)
        return _Done((track,), 0, [] if track.chunks else [(track, [self._draw(track, logits)])])

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        return [(track,) for track in tracks if track.can_step and track.step == len(track.drawn)]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        (track,) = part
        logits = track.model.read([track.drawn[-1]], track.user)
        return _Done((track,), 1, [(track, [self._draw(track, logits)])])

    def _draw(self, track: Track, logits: npt.NDArray[np.float32]) -> Drawn:
        if track.matcher:
            track.sampler.allow(track.matcher.mask())
        drawn = _launcher(track).draw(logits, track.step)
        track.step += 1
        return drawn


def _launcher(track: Track) -> Launcher:
    return Launcher(track.model, track.sampler, track.user)
