"""Requests with different settings step as one batch: each gets its answer as if alone, and the number of
launches does not grow."""

from __future__ import annotations

from typing import Any

import pytest
from engine_fixtures import SHORT, A, B, Watched, alone, asked, same

from pteron.gpu import Command, Copy, Device
from pteron.llm import LLM, Drawn, Sampling, batched_model
from pteron.llm.batched_model import BatchedModel
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import BatchedStepper, SingleStepper
from pteron.llm.sampling.batch_sampler import BatchDrawing, BatchSampler
from pteron.llm.submission import BatchRow
from pteron.serving import Engine, Request

# Each setting alone or combined; penalties are large, so that a wrong token count changes the result.
SETTINGS = (
    Sampling(),
    Sampling(temperature=0.9, top_k=9, seed=4),
    Sampling(temperature=1.3, top_p=0.8, seed=5),
    Sampling(temperature=1.1, min_p=0.02, repetition_penalty=1.7, seed=6, top_logprobs=2),
    Sampling(repetition_penalty=2.5),
    Sampling(presence_penalty=1.5, frequency_penalty=0.7, top_logprobs=5),
    Sampling(logit_bias={3: 4.0, 40: -100, 41: 2.5}, frequency_penalty=1.9),
    Sampling(1.4, 30, 0.95, 0.01, 1.3, 7, 0.5, 0.25, {5: 1.5, 200: -100}, 3),
)
PROMPTS = (A[:5], B[3:9], SHORT, A[2:13], A[:9], B[:2], (9, 7), B[5:])


def test_eight_settings_at_once(engine: Engine, watched: Watched) -> None:
    requests = [
        asked(ids, 8 + 2 * index, sampling=sampling)
        for index, (ids, sampling) in enumerate(zip(PROMPTS, SETTINGS, strict=True))
    ]
    expected = [alone(engine.llm, request) for request in requests]
    engine.llm.reset()
    watched.hold("begin", 0)
    answers = [engine.submit(request) for request in requests]
    watched.reached()
    watched.go()
    for answer, right, sampling in zip(answers, expected, SETTINGS, strict=True):
        pieces = answer.pieces()
        same(pieces, right)
        assert len(pieces[0].top) == sampling.top_logprobs


def test_alone_and_together_in_turns(tiny_llm: LLM) -> None:
    """A sequence keeps its token counts while it moves between its own sampler and a slot, several times."""
    chosen = (3, 4, 5, 6)
    requests = [asked(PROMPTS[index], 24, sampling=SETTINGS[index]) for index in chosen]
    expected = [alone(tiny_llm, request) for request in requests]
    tiny_llm.reset()
    stepper = BatchedStepper(tiny_llm.pool.gather(()), SingleStepper())
    tracks = [begun(tiny_llm, request) for request in requests]
    found: dict[RunningRequest, list[Drawn]] = {track: [] for track in tracks}
    under_way = []
    for track in tracks:
        while track.chunks:
            under_way.append(stepper.prefill(track))
    one, two, three, four = tracks
    turns = [((one, two), 3), ((one,), 2), ((two,), 1), ((one, two, three), 2), ((three,), 4), ((two,), 3)]
    turns += [((two, three, four, one), 5), ((four,), 1), ((four, three), 2), ((one, four), 4), ((one,), 3)]
    for part, most in turns:
        under_way.append(stepper.launch(part, most))
    for submission in under_way:  # no wait before this point
        for track, drawn in submission.wait():
            found[track] += drawn
    for track, right in zip(tracks, expected, strict=True):
        assert len(found[track]) == track.step >= 12
        same(found[track], right[: track.step])
        track.release()
        track.close()


def begun(llm: LLM, request: Request) -> RunningRequest:
    return RunningRequest.begin(Job(request), llm.pool.lease(request.ids), llm.tokenizer, frozenset())


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sampling launches of each batched step."""
    made: list[int] = []
    drawing = BatchSampler.drawing

    def counting(draws: BatchSampler, *given: Any) -> BatchDrawing:
        found = drawing(draws, *given)
        made.append(len(found.replay.steps))
        return found

    monkeypatch.setattr(BatchSampler, "drawing", counting)
    return made


def test_launches_do_not_grow_with_rows(
    tiny_llm: LLM, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[Command]] = []
    submit = batched_model.submit  # type: ignore[attr-defined]  # as that module knows it

    def counting(device: Device, given: list[Command]) -> int:
        commands.append(given)
        return submit(device, given)

    monkeypatch.setattr(batched_model, "submit", counting)
    model = tiny_llm.model
    made = BatchedModel(model, 9)
    sequences = [made.model.sequence() for _ in range(9)]
    last = model.sampler(SETTINGS[-1])
    samplers = [model.sampler(sampling) for sampling in SETTINGS]
    slots = [made.slot_of(sequence) or 0 for sequence in sequences]

    def step(rows: list[BatchRow]) -> None:
        made.step(rows, 2).read()

    plain = [BatchRow(slot, 0, 1) for slot in slots]
    step(plain)
    assert launches.pop() == 2
    for count in (1, 3, 8):  # `last` uses every setting, so other rows add no launches
        rows = [BatchRow(slots[8], 0, 1, last)]
        rows += [
            BatchRow(slot, 0, 1, sampler) for slot, sampler in zip(slots[:count], samplers, strict=False)
        ]
        step(rows)
        step([BatchRow(row.slot, 2, None, row.sampler, 2) for row in rows])
        model_and_draw, home = commands[-1][:-1], commands[-1][-1]
        assert len(model_and_draw) == 4  # of two steps: no request joined, so nothing was uploaded
        assert isinstance(home, Copy)
    assert len(set(launches)) == 1
    for sampler in (last, *samplers):
        sampler.close()
    for sequence in sequences:
        sequence.close()
    made.close()
