"""Answers that follow a grammar, beside others that do not: each is the one that its request gets alone."""

from __future__ import annotations

import re

import pytest
from engine_fixtures import A, B, Watched, asked

from pteron import DeviceError, InputError
from pteron.llm import LLM, Grammar, LanguageModel, Matcher, Piece, Sampling
from pteron.serving import Engine, Request

pytest.importorskip("llguidance", reason="needs the extra `serve`")
PATTERN = "[a-f]{3,9} (one|two)!"
DRAWN = Sampling(temperature=1.5, seed=3, top_logprobs=2)


@pytest.fixture
def grammar(tiny_llm: LLM) -> Grammar:
    return Grammar.regex(tiny_llm.tokenizer, PATTERN)


@pytest.fixture
def requests(grammar: Grammar) -> list[Request]:
    return [
        asked(A, 30, grammar=grammar),
        asked(B, 20),
        asked(B, 30, grammar=grammar, sampling=DRAWN, stop_ids=None),
        asked(A, 20, sampling=DRAWN),
        asked(A, 5, grammar=grammar),
    ]


@pytest.fixture
def expected(tiny_llm: LLM, requests: list[Request]) -> list[list[Piece]]:
    found = []
    for request in requests:
        tiny_llm.reset()
        pieces = tiny_llm.generate(
            request.ids,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            stop_ids=None if request.stop_ids is None else [],
            grammar=request.grammar,
        )
        found.append(list(pieces))
    return found


@pytest.mark.parametrize("way", ["together", "one by one", "through the host"])
def test_beside_others(
    tiny_llm: LLM,
    requests: list[Request],
    expected: list[list[Piece]],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    if way == "through the host":
        monkeypatch.setattr(LanguageModel, "is_resident", False)
    tiny_llm.reset()
    with Engine(tiny_llm, batched=None if way == "together" else False) as engine:
        answers = [engine.submit(request) for request in requests]
        for answer, right in zip(answers, expected, strict=True):
            found = answer.pieces()
            assert [(piece.token, piece.text) for piece in found] == [
                (piece.token, piece.text) for piece in right
            ]
            assert [len(piece.top) for piece in found] == [len(piece.top) for piece in right]
    assert [answer.finish_reason for answer in answers] == ["stop", "length", "stop", "length", "length"]
    for answer in (answers[0], answers[2]):
        assert re.fullmatch(PATTERN, answer.text())


def test_a_grammar_that_fails(
    engine: Engine, requests: list[Request], expected: list[list[Piece]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beside it go on."""
    masks = 0

    def failing(matcher: Matcher) -> None:
        nonlocal masks
        masks += 1
        raise DeviceError("no mask")

    monkeypatch.setattr(Matcher, "mask", failing)
    answers = [engine.submit(request) for request in requests[:2]]
    with pytest.raises(DeviceError, match="no mask"):
        answers[0].pieces()
    assert [piece.token for piece in answers[1]] == [piece.token for piece in expected[1]]
    assert masks == 1


def test_cancelled(engine: Engine, watched: Watched, requests: list[Request]) -> None:
    watched.hold("step", 0)
    answer = engine.submit(requests[0])
    watched.reached()
    answer.cancel()
    watched.go()
    assert len(answer.pieces()) < 4
    assert answer.finish_reason == "cancelled"


def test_what_is_no_grammar() -> None:
    with pytest.raises(InputError, match="grammar must be a Grammar"):
        asked(A, grammar=PATTERN)
