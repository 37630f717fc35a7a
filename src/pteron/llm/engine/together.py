"""Steps of all sequences in one plan: one submission for many, the weights read once.

Prompts are read one by one, by the plan of a sequence. One that is alone steps alone. From one way to the
other its last token moves on the GPU: nobody waits for it.
Those that follow grammars go one step at a time, so they are a part of their own: others need not wait for
them after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from weakref import WeakSet

from pteron.llm.batched import STEPS_MAX, Batched
from pteron.llm.burst import Burst, Row
from pteron.llm.engine.steps import Arrived, OneByOne, Stepper, Submission
from pteron.llm.engine.track import Track
from pteron.llm.entered import work_on

GATHERED = 0.002  # seconds that those who know what may follow wait for others who do not


@dataclass(frozen=True, slots=True, eq=False)
class _Steps(Submission):
    """Steps of several tracks, a row each."""

    tracks: tuple[Track, ...]
    steps: int
    burst: Burst

    def is_ready(self) -> bool:
        with self.tracks[0].model.device.lock:
            return self.burst.is_ready

    def wait(self) -> Arrived:
        with self.tracks[0].model.device.lock:
            drawn = self.burst.read()
        return list(zip(self.tracks, drawn, strict=True))


class Together(Stepper):
    """All sequences that lie in slots step together, where there are two or more; others as they do `alone`,
    where they may have begun."""

    def __init__(self, batched: Batched, alone: OneByOne) -> None:
        self._batched = batched
        self._alone = alone
        self._by_slot: WeakSet[Track] = WeakSet()  # those whose last token was drawn there
        self._are_several = False  # that follow grammars

    def read(self, track: Track) -> Submission:
        self._batched.house(track.model)
        return self._alone.read(track)

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        able = [track for track in tracks if track.can_step]
        free = tuple(track for track in able if not track.matcher and self._can_join(track))
        masked, are_all = self._gather(tracks)
        held = () if are_all else masked
        parts = [part for part in (free, masked) if len(part) > 1 and part is not held]
        aside = {*held, *(track for part in parts for track in part)}
        return [*parts, *((track,) for track in able if track not in aside)]

    def _gather(self, tracks: Sequence[Track]) -> tuple[tuple[Track, ...], bool]:
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

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        if len(part) == 1:
            return self._launch_alone(part[0], most)
        count = min(most, STEPS_MAX, *(track.count - track.step for track in part))
        if part[0].matcher:
            count = 1
        device = self._batched.device
        with device.lock:
            with work_on(device):
                for track in part:
                    track.model.check_user(track.user)
                rows = [self._row(track) for track in part]
                for track in part:
                    track.model.stepped(count)
            burst = self._batched.step(rows, count)
        for track in part:
            track.step += count
            self._by_slot.add(track)
        return _Steps(part, count, burst)

    def ahead(self, track: Track) -> None:
        if not self._are_several:
            self._alone.ahead(track)

    def _launch_alone(self, track: Track, most: int) -> Submission:
        slot = self._batched.slot_of(track.model)
        token = None
        if slot is not None and track in self._by_slot:
            token = self._batched.token_of(slot)
            self._batched.leave(slot, track.sampler)
        submission = self._alone.go_on(track, most, token)
        self._by_slot.discard(track)
        return submission

    def _can_join(self, track: Track) -> bool:
        """Whether a track steps with others, as soon as it can."""
        is_own = track.model.is_used_by(track.user)  # one that was taken over fails alone
        return is_own and not _has_failed(track) and self._batched.slot_of(track.model) is not None

    def _row(self, track: Track) -> Row:
        slot = self._batched.slot_of(track.model)
        assert slot is not None
        token = None if track in self._by_slot else track.sampler.drawn_at(track.step - 1)
        sampler = None if track.sampler.form.is_plain else track.sampler
        mask = track.take_mask() if track.matcher else None
        return Row(slot, track.model.position, token, sampler, track.step, mask)


def _has_failed(track: Track) -> bool:
    """Whether nobody can say what may follow by its grammar: then it fails alone."""
    return track.mask is not None and track.mask.error is not None
