"""Steps of all sequences in one plan: one submission for many, the weights read once.

Prompts are read one by one, by the plan of a sequence. One that is alone steps alone. From one way to the
other its last token moves on the GPU: nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakSet

from pteron.errors import DeviceError
from pteron.llm.batched import STEPS_MAX, Batched
from pteron.llm.burst import Burst, Row
from pteron.llm.engine.steps import Arrived, OneByOne, Stepper, Submission
from pteron.llm.engine.track import Track
from pteron.llm.entered import work_on
from pteron.llm.text_model import TextModel


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
    """All sequences that lie in slots step together, where there are two or more."""

    def __init__(self, batched: Batched) -> None:
        self._batched = batched
        self._alone = OneByOne()
        self._by_slot: WeakSet[Track] = WeakSet()  # those whose last token was drawn there

    def read(self, track: Track) -> Submission:
        self._batched.house(track.model)
        return self._alone.read(track)

    def parts(self, tracks: Sequence[Track]) -> list[tuple[Track, ...]]:
        able = [track for track in tracks if track.can_step]
        joined = tuple(track for track in able if self._can_join(track))
        if len(joined) < 2:
            return [(track,) for track in able]
        return [joined, *((track,) for track in able if track not in joined)]

    def launch(self, part: tuple[Track, ...], most: int) -> Submission:
        if len(part) == 1:
            return self._launch_alone(part[0], most)
        count = min(most, STEPS_MAX, *(track.count - track.step for track in part))
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
        is_own = track.model.is_used_by(track.user)  # one that was taken over fails alone
        return is_own and self._batched.slot_of(track.model) is not None and not track.sampler.form.masks

    def _row(self, track: Track) -> Row:
        slot = self._batched.slot_of(track.model)
        assert slot is not None
        token = None if track in self._by_slot else track.sampler.drawn_at(track.step - 1)
        sampler = None if track.sampler.form.is_plain else track.sampler
        return Row(slot, track.model.position, token, sampler, track.step)


def together(llm: TextModel) -> Together | None:
    """Steps of all sequences of a model together; None where it, or the device, cannot."""
    pool = llm._pool
    if pool.batched is None:
        if Batched.reason(llm.model) is not None:
            return None
        slots = min(pool.bound, Batched.slots_max(llm.model))
        if slots < 2:
            return None
        try:
            pool.batched = Batched(llm.model, slots)
        except DeviceError:  # no room for the caches of so many side by side
            return None
    return Together(pool.batched)
