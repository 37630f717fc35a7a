"""Work of an engine's sequences on the GPU: chunks of prompts, and steps of decoding, as submissions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.gpu import Command, Copy, Readback, submit
from pteron.llm.engine.track import Track
from pteron.llm.entered import work_on
from pteron.llm.generate import Drawn, drawn_from, last_row
from pteron.runtime.outputs import Outputs
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
class _Burst(Submission):
    """Steps that follow one another on the GPU, or a prompt's last chunk, and the tokens drawn after each on
    their way to the host."""

    tracks: tuple[Track]
    steps: int
    first: int
    count: int
    readback: Readback
    number: int

    def is_ready(self) -> bool:
        with self.tracks[0].model.device.lock:
            return self.readback.is_ready()

    def wait(self) -> Arrived:
        (track,) = self.tracks
        with track.model.device.lock:
            data = self.readback.peek(0, track.sampler.drawn_bytes, self.number)
            self.readback.release()
        drawn = [drawn_from(track.sampler, data, self.first + index) for index in range(self.count)]
        return [(track, drawn)]


class OneByOne(Stepper):
    """Each sequence steps by itself, and stays on the GPU from step to step."""

    def read(self, track: Track) -> Submission:
        model, chunk = track.model, track.chunks.popleft()
        if not track.chunks:
            return self._masked(track, chunk) if track.matcher else self._burst(track, chunk)
        with model.device.lock, work_on(model.device):
            model.check_user(track.user)
            return _Chunk((track,), model.launch(chunk))

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        return [(track,) for track in tracks if track.can_step]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        return self.go_on(part[0], most)

    def go_on(self, track: Track, most: int, token: View | None = None) -> Submission:
        """Steps of a track from the token on that it has drawn last, or from where that lies instead."""
        if track.matcher:
            return self._masked(track, [track.drawn[-1]])
        return self._burst(track, most=most, token=token)

    def _burst(
        self, track: Track, tokens: list[int] | None = None, most: int = 1, token: View | None = None
    ) -> Submission:
        """Steps from this one on; the first reads `tokens`, or else the one that was drawn last."""
        model, sampler, step = track.model, track.sampler, track.step
        device = model.device
        with device.lock, work_on(device):
            model.check_user(track.user)
            readback = device.readback(sampler.drawn_bytes)
            home = Copy(sampler.drawn, readback.staging, sampler.drawn_bytes)

            def draw(outputs: Outputs) -> list[Command]:
                return [*sampler.commands(last_row(outputs), step), home]

            if tokens is not None:
                number, count = model.launch(tokens, draw), 1
            else:
                number, count = model.launch_steps(
                    token or sampler.drawn_at(step - 1),
                    min(most, track.count - step),
                    lambda logits, token, growing: sampler.replay(logits, step, token, growing),
                    [home],
                )
            sampler.took(step + count)
            readback.begin()
        track.step += count
        return _Burst((track,), 0 if tokens else count, step, count, readback, number)

    def _masked(self, track: Track, tokens: list[int]) -> Submission:
        """One step that reads these tokens. What may follow them is found out while the GPU does, and others
        may come between model and draw: the sampler keeps the logits for itself."""
        model, sampler, step = track.model, track.sampler, track.step
        device, matcher = model.device, track.matcher
        assert matcher is not None

        def keep(outputs: Outputs) -> list[Command]:
            return [sampler.keep(last_row(outputs))]

        with device.lock, work_on(device):
            model.check_user(track.user)
            model.launch(tokens, keep)
        sampler.allow(matcher.mask())
        with device.lock, work_on(device):
            readback = device.readback(sampler.drawn_bytes)
            home = Copy(sampler.drawn, readback.staging, sampler.drawn_bytes)
            number = submit(device, [*sampler.commands(sampler.kept, step), home])
            sampler.took(step + 1)
            readback.begin()
        track.step += 1
        return _Burst((track,), 1 if step else 0, step, 1, readback, number)


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
        device, sampler, step = track.model.device, track.sampler, track.step
        if track.matcher:
            sampler.allow(track.matcher.mask())
        with device.lock, work_on(device):
            sampler.draw(logits, step)
            data = device.read(sampler.drawn, sampler.drawn_bytes)
        track.step += 1
        return drawn_from(sampler, data, step)
