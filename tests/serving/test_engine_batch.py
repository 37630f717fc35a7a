"""Batched decode: one submission for all sequences, whatever their settings, and each gets its tokens as if
alone."""

from __future__ import annotations

from typing import Any

import pytest
from engine_fixtures import (
    SHORT,
    A,
    B,
    Watched,
    alone,
    asked,
    at_once,
    one_by_one,
    read_all,
    same,
    tokens,
    tokens_alone,
)

from pteron.gpu import Command, Copy, Device
from pteron.llm import LLM, Drawn, LanguageModel, Sampling
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.engine import batched_model
from pteron.llm.engine.answer import Job
from pteron.llm.engine.batched_model import BatchedModel, BatchRow
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import BatchedStepper, SingleStepper
from pteron.llm.names.models import BUNDLED
from pteron.llm.sampling.batch_sampler import BatchDrawing, BatchSampler
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
    answers = watched.submit(requests, "begin")
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
    tracks = [
        RunningRequest.begin(Job(request), tiny_llm.pool.lease(request.ids), tiny_llm.tokenizer, frozenset())
        for request in requests
    ]
    found: dict[RunningRequest, list[Drawn]] = {track: [] for track in tracks}
    in_flight = []
    for track in tracks:
        while track.chunks:
            in_flight.append(stepper.prefill(track))
    one, two, three, four = tracks
    turns = [((one, two), 3), ((one,), 2), ((two,), 1), ((one, two, three), 2), ((three,), 4), ((two,), 3)]
    turns += [((two, three, four, one), 5), ((four,), 1), ((four, three), 2), ((one, four), 4), ((one,), 3)]
    for part, most in turns:
        in_flight.append(stepper.step(part, most))
    for submission in in_flight:  # no wait before this point
        for track, drawn in submission.wait():
            found[track] += drawn
    for track, right in zip(tracks, expected, strict=True):
        assert len(found[track]) == track.step >= 12
        same(found[track], right[: track.step])
        track.release()
        track.close()


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sampling launches of each batched step."""
    made: list[int] = []
    drawing = BatchSampler.drawing

    def counting(draws: BatchSampler, *given: Any) -> BatchDrawing:
        found = drawing(draws, *given)
        made.append(len(found.replay.launches))
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


def test_one_submission_for_all(engine: Engine, watched: Watched, bursts: list[tuple[int, int, int]]) -> None:
    """Requests join and leave the batch, and the last one runs alone: the tokens stay the same."""
    settings = [Sampling(), *(Sampling(temperature=0.9, seed=seed) for seed in (4, 5)), Sampling()]
    requests = [
        asked(ids, 34 + 4 * index, sampling=sampling)
        for index, (ids, sampling) in enumerate(zip(PROMPTS, settings, strict=False))
    ]
    expected = tokens_alone(engine.llm, requests)
    answers = watched.submit(requests, "begin")
    watched.go()
    assert read_all(answers) == expected
    assert {rows for rows, *_ in bursts} >= {2, 3, 4}
    batched = sum(rows * steps for rows, _, steps in bursts)
    assert batched < sum(map(len, expected))  # not all steps are batched
    before = len(bursts)
    assert tokens(engine.submit(requests[0]).pieces()) == expected[0]
    assert len(bursts) == before  # a single request uses its own plan


@one_by_one
def test_without_batches(engine: Engine, bursts: list[tuple[int, int, int]]) -> None:
    assert list(map(len, read_all(at_once(engine, [asked(A), asked(B)])))) == [8, 8]
    assert not bursts
    assert engine.slots == 0
    assert engine.stepping == "each sequence steps alone: batched=False"


def test_engines_of_one_model_share_its_slots(tiny_llm: LLM) -> None:
    requests = [asked(A), asked(B)]
    expected = tokens_alone(tiny_llm, requests)
    for turn in range(2):
        with Engine(tiny_llm) as engine:
            assert engine.slots == (SEQUENCES_MAX if turn else 0)  # existing slots are reused
            assert read_all(at_once(engine, requests)) == expected
    assert tokens_alone(tiny_llm, requests) == expected


def test_a_device_without_room(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchedModel, "slots_max", lambda _: 1)
    with Engine(tiny_llm) as engine:
        assert list(map(len, read_all(at_once(engine, [asked(A), asked(B)])))) == [8, 8]
        assert engine.slots == 0
        assert engine.stepping.endswith("cannot be batched: the device has no room for two of its caches")
    monkeypatch.setattr(LanguageModel, "is_resident", False)
    assert "through the host" in (BatchedModel.reason(tiny_llm.model) or "")


@pytest.mark.long
@pytest.mark.parametrize("batched", [True, False], ids=["together", "one by one"])
def test_states_besides_kv_caches(batched: bool) -> None:
    """The plan of stories15m has states other than KV caches."""
    texts = ("Once upon a time", "The dog", "Lily and Tom went to the park. They saw a big")
    with LLM(BUNDLED["stories15m"]) as llm:
        requests = [Request(llm.encode(text), 12) for text in texts]
        expected = tokens_alone(llm, requests)
        with Engine(llm, batched=batched) as engine:
            assert read_all([engine.submit(request) for request in requests]) == expected
