"""Work of an engine's sequences on the GPU: chunks of prompts, and steps of decoding, as submissions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt

from pteron.host.tensors import View
from pteron.llm.batched_model import STEPS_MAX, BatchedModel
from pteron.llm.burst import BatchSubmission, Row
from pteron.llm.engine.running import RunningRequest
from pteron.llm.reentrancy import device_guard
from pteron.llm.submission import Drawn, StepSubmission, Submitter

Arrived: TypeAlias = list[tuple[RunningRequest, list[Drawn]]]


class Submission(ABC):
    """Work under way for some tracks: `steps` of decoding of each, or none and a chunk of a prompt."""

    tracks: tuple[RunningRequest, ...]
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
    def read(self, track: RunningRequest) -> Submission: ...

    @abstractmethod
    def parts(self, tracks: Sequence[RunningRequest]) -> list[tuple[RunningRequest, ...]]: ...

    @abstractmethod
    def launch(self, part: tuple[RunningRequest, ...], most: int) -> Submission: ...

    @abstractmethod
    def ahead(self, track: RunningRequest) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk(Submission):
    """A part of a prompt."""

    tracks: tuple[RunningRequest]
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

    tracks: tuple[RunningRequest]
    steps: int
    launched: StepSubmission

    def is_ready(self) -> bool:
        with self.tracks[0].model.device.lock:
            return self.launched.is_ready

    def wait(self) -> Arrived:
        (track,) = self.tracks
        with track.model.device.lock:
            return [(track, self.launched.read())]


class SingleStepper(Stepper):
    """Each sequence steps by itself, and stays on the GPU from step to step."""

    def read(self, track: RunningRequest) -> Submission:
        launcher, chunk = _launcher(track), track.chunks.popleft()
        if track.chunks:
            return _Chunk((track,), launcher.read(chunk))
        if track.matcher:
            return _Chunk((track,), self._keep(track, chunk))
        launched = launcher.read_and_draw(chunk, track.step)
        track.step += 1
        return _Steps((track,), 0, launched)

    def parts(self, tracks: Sequence[RunningRequest]) -> list[tuple[RunningRequest, ...]]:
        return [(track,) for track in tracks if track.can_step]

    def launch(self, part: tuple[RunningRequest, ...], most: int) -> Submission:
        return self.go_on(part[0], most)

    def go_on(self, track: RunningRequest, most: int, token: View | None = None) -> Submission:
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

    def ahead(self, track: RunningRequest) -> None:
        self._keep(track, track.drawn[-1:])

    def _keep(self, track: RunningRequest, tokens: list[int]) -> int:
        """Have tokens read; the next is drawn later. The submission's number."""
        number = _launcher(track).read_and_keep(tokens)
        track.is_kept = True
        return number


@dataclass(frozen=True, slots=True, eq=False)
class _Done(Submission):
    """What was waited for already."""

    tracks: tuple[RunningRequest]
    steps: int
    arrived: Arrived

    def is_ready(self) -> bool:
        return True

    def wait(self) -> Arrived:
        return self.arrived


class HostStepper(Stepper):
    """Each sequence steps by itself, its logits through the host: right for every program. The exception from
    not waiting: its programs leave no choice."""

    def __init__(self) -> None:
        self._logits: WeakKeyDictionary[RunningRequest, npt.NDArray[np.float32]] = (
            WeakKeyDictionary()
        )  # to draw from

    def read(self, track: RunningRequest) -> Submission:
        logits = track.model.read(track.chunks.popleft(), track.user)
        if track.matcher and not track.chunks:
            self._logits[track] = logits
        if track.matcher or track.chunks:
            return _Done((track,), 0, [])
        return _Done((track,), 0, [(track, [self._draw(track, logits)])])

    def parts(self, tracks: Sequence[RunningRequest]) -> list[tuple[RunningRequest, ...]]:
        return [(track,) for track in tracks if track.can_step and track.step == len(track.drawn)]

    def launch(self, part: tuple[RunningRequest, ...], most: int) -> Submission:
        (track,) = part
        logits = self._logits.pop(track, None)
        if logits is None:
            logits = track.model.read(track.drawn[-1:], track.user)
        return _Done((track,), 1, [(track, [self._draw(track, logits)])])

    def ahead(self, track: RunningRequest) -> None:
        pass

    def _draw(self, track: RunningRequest, logits: npt.NDArray[np.float32]) -> Drawn:
        if track.matcher:
            track.sampler.allow(track.take_mask())
        drawn = _launcher(track).draw(logits, track.step)
        track.step += 1
        return drawn


def _launcher(track: RunningRequest) -> Submitter:
    return Submitter(track.model, track.sampler, track.user)


GATHERED = 0.002  # seconds that those who know what may follow wait for others who do not


@dataclass(frozen=True, slots=True, eq=False)
class _BatchSteps(Submission):
    """Steps of several tracks, a row each."""

    tracks: tuple[RunningRequest, ...]
    steps: int
    burst: BatchSubmission

    def is_ready(self) -> bool:
        with self.tracks[0].model.device.lock:
            return self.burst.is_ready

    def wait(self) -> Arrived:
        with self.tracks[0].model.device.lock:
            drawn = self.burst.read()
        return list(zip(self.tracks, drawn, strict=True))


class BatchedStepper(Stepper):
    """All sequences that lie in slots step together, where there are two or more; others as they do `alone`,
    where they may have begun."""

    def __init__(self, batched: BatchedModel, alone: SingleStepper) -> None:
        self._batched = batched
        self._alone = alone
        self._by_slot: WeakSet[RunningRequest] = WeakSet()  # those whose last token was drawn there
        self._are_several = False  # that follow grammars

    def read(self, track: RunningRequest) -> Submission:
        self._batched.house(track.model)
        return self._alone.read(track)

    def parts(self, tracks: Sequence[RunningRequest]) -> list[tuple[RunningRequest, ...]]:
        able = [track for track in tracks if track.can_step]
        free = tuple(track for track in able if not track.matcher and self._can_join(track))
        masked, are_all = self._gather(tracks)
        held = () if are_all else masked
        parts = [part for part in (free, masked) if len(part) > 1 and part is not held]
        aside = {*held, *(track for part in parts for track in part)}
        return [*parts, *((track,) for track in able if track not in aside)]

    def _gather(self, tracks: Sequence[RunningRequest]) -> tuple[tuple[RunningRequest, ...], bool]:
        """Those that follow grammars and can step together now; and whether they are all that will soon. Were
        these to go on without the others, the two would take turns for ever, and read the weights twice."""
        joining = [track for track in tracks if track.matcher and self._can_join(track)]
        self._are_several = len(joining) > 1
        stepping = [track for track in joining if not track.is_kept]
        # Asked again: what has failed since is known to have once it can step.
        ready = tuple(track for track in stepping if track.can_step and not _has_failed(track))
        since = monotonic() - GATHERED
        late = (track.mask for track in stepping if track not in ready and track.step < track.count)
        return ready, not any(mask is None or mask.asked > since for mask in late)

    def launch(self, part: tuple[RunningRequest, ...], most: int) -> Submission:
        if len(part) == 1:
            return self._launch_alone(part[0], most)
        count = min(most, STEPS_MAX, *(track.count - track.step for track in part))
        if part[0].matcher:
            count = 1
        device = self._batched.device
        with device.lock:
            with device_guard(device):
                for track in part:
                    track.model.check_user(track.user)
                rows = [self._row(track) for track in part]
                for track in part:
                    track.model.stepped(count)
            burst = self._batched.step(rows, count)
        for track in part:
            track.step += count
            self._by_slot.add(track)
        return _BatchSteps(part, count, burst)

    def ahead(self, track: RunningRequest) -> None:
        if not self._are_several:
            self._alone.ahead(track)

    def _launch_alone(self, track: RunningRequest, most: int) -> Submission:
        slot = self._batched.slot_of(track.model)
        token = None
        if slot is not None and track in self._by_slot:
            token = self._batched.token_of(slot)
            self._batched.leave(slot, track.sampler)
        submission = self._alone.go_on(track, most, token)
        self._by_slot.discard(track)
        return submission

    def _can_join(self, track: RunningRequest) -> bool:
        """Whether a track steps with others, as soon as it can."""
        is_own = track.model.is_used_by(track.user)  # one that was taken over fails alone
        return is_own and not _has_failed(track) and self._batched.slot_of(track.model) is not None

    def _row(self, track: RunningRequest) -> Row:
        slot = self._batched.slot_of(track.model)
        assert slot is not None
        token = None if track in self._by_slot else track.sampler.drawn_at(track.step - 1)
        sampler = None if track.sampler.form.is_plain else track.sampler
        mask = track.take_mask() if track.matcher else None
        return Row(slot, track.model.position, token, sampler, track.step, mask)


def _has_failed(track: RunningRequest) -> bool:
    """Whether nobody can say what may follow by its grammar: then it fails alone."""
    return track.mask is not None and track.mask.error is not None
