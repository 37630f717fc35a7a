"""Batched decode: one submission for all sequences, and each gets its tokens as if alone."""

from __future__ import annotations

import pytest
from engine_fixtures import A, B, Watched, alone, asked, at_once, one_by_one, tokens

from pteron.llm import LLM, LanguageModel, Sampling
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.batched_model import BatchedModel
from pteron.llm.submission import BatchRow, BatchSubmission
from pteron.serving import Engine

PROMPTS = (A[:5], B[3:9], (7, 9), A[2:13])
SETTINGS = (Sampling(), Sampling(temperature=0.9, seed=4), Sampling(temperature=0.9, seed=5), Sampling())


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(rows, steps) of every batched submission."""
    made: list[tuple[int, int]] = []
    step = BatchedModel.step

    def counting(batched: BatchedModel, rows: list[BatchRow], count: int = 1) -> BatchSubmission:
        burst = step(batched, rows, count)
        made.append((len(rows), burst.count))
        return burst

    monkeypatch.setattr(BatchedModel, "step", counting)
    return made


def test_one_submission_for_all(engine: Engine, watched: Watched, bursts: list[tuple[int, int]]) -> None:
    """Requests join and leave the batch, and the last one runs alone: the tokens stay the same."""
    requests = [
        asked(ids, 34 + 4 * index, sampling=sampling)
        for index, (ids, sampling) in enumerate(zip(PROMPTS, SETTINGS, strict=True))
    ]
    expected = [tokens(alone(engine.llm, request)) for request in requests]
    engine.llm.reset()
    watched.hold("begin", 0)
    answers = [engine.submit(request) for request in requests]
    watched.reached()
    watched.go()
    assert [tokens(answer.pieces()) for answer in answers] == expected
    assert {rows for rows, _ in bursts} >= {2, 3, 4}
    together = sum(rows * steps for rows, steps in bursts)
    assert together < sum(len(said) for said in expected)  # not all steps are batched
    before = len(bursts)
    assert tokens(engine.submit(requests[0]).pieces()) == expected[0]
    assert len(bursts) == before  # a single request uses its own plan


@one_by_one
def test_one_by_one_where_told(engine: Engine, bursts: list[tuple[int, int]]) -> None:
    answers = at_once(engine, [asked(A), asked(B)])
    assert [len(answer.pieces()) for answer in answers] == [8, 8]
    assert not bursts
    assert engine.slots == 0
    assert engine.stepping == "each sequence steps alone: batched=False"


def test_engines_of_one_model_share_its_slots(tiny_llm: LLM) -> None:
    expected = [tokens(alone(tiny_llm, asked(ids))) for ids in (A, B)]
    for turn in range(2):
        with Engine(tiny_llm) as engine:
            assert engine.slots == (SEQUENCES_MAX if turn else 0)  # existing slots are reused
            answers = at_once(engine, [asked(A), asked(B)])
            assert [tokens(answer.pieces()) for answer in answers] == expected
    assert [tokens(alone(tiny_llm, asked(ids))) for ids in (A, B)] == expected


def test_a_device_without_room(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchedModel, "slots_max", lambda _: 1)
    with Engine(tiny_llm) as engine:
        answers = at_once(engine, [asked(A), asked(B)])
        assert [len(answer.pieces()) for answer in answers] == [8, 8]
        assert engine.slots == 0
        assert engine.stepping.endswith("cannot be batched: the device has no room for two of its caches")
    monkeypatch.setattr(LanguageModel, "is_resident", False)
    assert "through the host" in (BatchedModel.reason(tiny_llm.model) or "")
