"""Requests with grammars step as one batch, next to requests without: each gets its answer as if alone."""

from __future__ import annotations

import threading
from time import sleep

import numpy as np
import numpy.typing as npt
import pytest
from engine_fixtures import PATIENCE, A, B, Watched, alone, asked, same

from pteron import DeviceError
from pteron.llm import LLM, Drawn, Grammar, Matcher, Sampling, model
from pteron.llm.engine import steppers
from pteron.llm.engine.answer import Job
from pteron.llm.engine.grammar_masks import PendingMask
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.scheduler import Scheduler
from pteron.llm.engine.steppers import SingleStepper, Submission
from pteron.serving import Engine, Request

pytest.importorskip("llguidance", reason="needs the extra `serve`")
PATTERN = "[a-f]{13,19} (one|two)!"  # long enough to still run when the last prompt is read
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}
SETTINGS = (
    Sampling(),
    Sampling(temperature=1.2, seed=4),
    Sampling(temperature=1.5, seed=5, repetition_penalty=1.7, frequency_penalty=0.5, top_logprobs=2),
    Sampling(presence_penalty=1.5, logit_bias={100: 3.0, 98: -100}),
)


@pytest.fixture
def mixed(tiny_llm: LLM) -> list[Request]:
    """Requests with and without a grammar, with all kinds of settings."""
    schema = Grammar.json_schema(tiny_llm.tokenizer, SCHEMA)
    pattern = Grammar.regex(tiny_llm.tokenizer, PATTERN)
    made = []
    for index, sampling in enumerate(SETTINGS):
        made.append(asked(A[: 5 + index], 30, sampling=sampling, grammar=pattern))
        made.append(asked(B[index : 7 + index], 40 + 3 * index, sampling=sampling))
        made.append(asked(B[: 3 + index], 33, sampling=sampling, grammar=schema))
    return made


def test_constrained_step_together(
    tiny_llm: LLM,
    mixed: list[Request],
    bursts: list[tuple[int, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All requests at once, then with queueing: constrained rows have submissions of one step of their own,
    while unconstrained rows do several steps."""
    monkeypatch.setattr(steppers, "GATHER_SECONDS", PATIENCE)  # independent of the machine's speed
    monkeypatch.setattr(model, "SECONDS_MAX", 1e6)
    right = [alone(tiny_llm, request) for request in mixed]
    tiny_llm.reset()
    with Engine(tiny_llm, running=12) as engine:
        watched = Watched(engine)
        answers = watched.submit(mixed, "begin")
        watched.go()
        for answer, pieces in zip(answers, right, strict=True):
            same(answer.pieces(), pieces)
        assert {masked for rows, masked, _ in bursts} >= {0, 8}
        assert all(masked in (0, rows) for rows, masked, _ in bursts)
        assert {steps for _, masked, steps in bursts if masked} == {1}
        assert max(steps for _, masked, steps in bursts if not masked) > 1
        constrained = [len(pieces) for pieces, request in zip(right, mixed, strict=True) if request.grammar]
        # One submission per step for all, except for the first draws (after the prompts) and the last one.
        assert sum(1 for _, masked, _ in bursts if masked) <= max(constrained) + len(constrained)
    with Engine(tiny_llm, running=3) as engine:
        answers = [engine.submit(request) for request in mixed[::-1]]
        for answer, pieces in zip(answers, right[::-1], strict=True):
            same(answer.pieces(), pieces)


def test_alone_and_together_in_turns(tiny_llm: LLM, mixed: list[Request]) -> None:
    """A sequence keeps its token counts and mask while it moves between its own sampler and a slot, several
    times. A mask in a slot does not affect the next, unconstrained user of the slot."""
    chosen = [mixed[index] for index in (2, 6, 9, 7)]
    right = [alone(tiny_llm, request) for request in chosen]
    tiny_llm.reset()
    stepper = steppers.BatchedStepper(tiny_llm.pool.gather(()), SingleStepper())
    tracks = [
        RunningRequest.begin(Job(request), tiny_llm.pool.lease(request.ids), tiny_llm.tokenizer, frozenset())
        for request in chosen
    ]
    found: dict[RunningRequest, list[Drawn]] = {track: [] for track in tracks}

    def take(submission: Submission) -> None:
        for track, drawn in submission.wait():
            found[track] += drawn
            track.take(drawn)
            if track.matcher:
                track.mask = None

    def know(track: RunningRequest) -> None:
        if track.matcher:
            track.mask = PendingMask(track.matcher)
            track.mask.compute()

    for track in tracks:
        while track.chunks:
            take(stepper.prefill(track))
    one, two, three, free = tracks
    turns = [(one,), (two,), (three,), (one, two), (one,), (two, three), (three,), (one, two, three), (free,)]
    turns += [(two,), (one, three), (two, one), (free,), (one,), (three, two, one), (two, three)]
    for part in turns:
        for track in part:
            know(track)
            if len(part) == 1 and track.matcher and track.drawn and len(track.drawn) % 2:
                stepper.single.prefill_ahead(track)  # as for a sequence that steps alone
        take(stepper.step(part, 1))
    for track, pieces in zip(tracks, right, strict=True):
        assert len(found[track]) == track.step >= 3
        same(found[track], pieces[: track.step])
        track.release()
        track.close()
    with Engine(tiny_llm) as engine:  # reuses slots that had masks
        answers = [engine.submit(mixed[index]) for index in (1, 4, 7, 10)]
        rights = [alone(tiny_llm, mixed[index]) for index in (1, 4, 7, 10)]
        for answer, pieces in zip(answers, rights, strict=True):
            same(answer.pieces(), pieces)


def test_one_whose_masks_take_long(
    tiny_llm: LLM, mixed: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other constrained requests step without the slow one, which joins them again later."""
    constrained = [request for request in mixed if request.grammar][:4]
    right = [alone(tiny_llm, request) for request in constrained]
    free, mask, slow = threading.Event(), Matcher.mask, list[Matcher]()

    def holding(matcher: Matcher) -> npt.NDArray[np.uint32]:
        if not slow:
            slow.append(matcher)
        if slow[0] is matcher:
            assert free.wait(PATIENCE)
        return mask(matcher)

    monkeypatch.setattr(Matcher, "mask", holding)
    with Engine(tiny_llm) as engine:
        answers = [engine.submit(request) for request in constrained]
        for answer, pieces in zip(answers[1:], right[1:], strict=True):
            same(answer.pieces(), pieces)
        assert not answers[0].finish_reason
        free.set()
        same(answers[0].pieces(), right[0])


def test_one_whose_mask_fails_as_others_are_gathered(
    tiny_llm: LLM, mixed: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose mask fails while the batch is collected is the only one that fails."""
    constrained = [request for request in mixed if request.grammar][:4]
    right = [alone(tiny_llm, request) for request in constrained]
    failing, fail, mask = list[Matcher](), threading.Event(), Matcher.mask
    can_join, turn, stepping = steppers.BatchedStepper._can_join, Scheduler.turn, list[bool]()

    def raising(matcher: Matcher) -> npt.NDArray[np.uint32]:
        if failing == [matcher]:
            assert fail.wait(PATIENCE)
            raise DeviceError("no mask for this one")
        return mask(matcher)

    def joining(stepper: steppers.BatchedStepper, track: RunningRequest) -> bool:
        can = can_join(stepper, track)
        if track.matcher and not failing and track.step > 2:
            failing.append(track.matcher)
        is_pending = track.mask is not None and not track.mask.is_done
        if stepping and is_pending and failing == [track.matcher] and not fail.is_set():
            fail.set()  # `can` is true here, but the mask fails before the request joins
            while track.mask and not track.mask.is_done:
                sleep(0.001)
        return can

    def turning(loop: Scheduler) -> steppers.Arrived:
        stepping.append(True)
        arrived = turn(loop)
        stepping.clear()
        return arrived

    monkeypatch.setattr(Matcher, "mask", raising)
    monkeypatch.setattr(Scheduler, "turn", turning)
    monkeypatch.setattr(steppers.BatchedStepper, "_can_join", joining)
    with Engine(tiny_llm) as engine:
        answers = [engine.submit(request) for request in constrained]
        failed = []
        for answer, pieces in zip(answers, right, strict=True):
            try:
                same(answer.pieces(), pieces)
            except DeviceError as error:
                failed.append(str(error))
        assert failed == ["no mask for this one"]
