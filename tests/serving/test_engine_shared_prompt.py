"""Requests with a common prefix on an engine: the prefix is prefilled once and copied for the others, both
with separate caches and with a batch in one buffer."""

from __future__ import annotations

from pathlib import Path

import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import alone, asked, tokens

from pteron import Device
from pteron.llm import LLM, sequence_pool
from pteron.serving import Answer, Engine

COPIED_MIN = 16
SYSTEM = (1, *(300 + 7 * index % 101 for index in range(22)))
ASKED = [asked((*SYSTEM, 100 + 31 * index, 200 + index, 17 * index + 5), 9) for index in range(6)]
FIRST = asked(SYSTEM, 30)


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("sequences", [3, 8])
def test_a_shared_beginning(
    device: Device, models: Path, monkeypatch: pytest.MonkeyPatch, batched: bool, sequences: int
) -> None:
    monkeypatch.setattr(sequence_pool, "COPIED_MIN", COPIED_MIN)
    with LLM(models / "tiny_llama_q4.pte", ByteTokenizer(), device=device, sequences=sequences) as llm:
        right = [tokens(alone(llm, request)) for request in (FIRST, *ASKED)]
        llm.reset()
        with Engine(llm, batched=batched) as engine:
            first = engine.submit(FIRST)
            begun(first)
            answers = [engine.submit(request) for request in ASKED]
            found = [tokens(answer.pieces()) for answer in (first, *answers)]
            assert found == right
            assert [answer.statistics.reused_tokens for answer in answers] == [len(SYSTEM)] * 6
            again = [engine.submit(request) for request in (*ASKED, FIRST)]
            assert [tokens(answer.pieces()) for answer in again] == [*right[1:], right[0]]
            assert llm.pool.live <= sequences
            assert llm.pool.bytes == (sequences if batched else llm.pool.live) * llm.sequence_bytes


def begun(answer: Answer) -> None:
    """Wait until an answer has its first token: its prompt has been read."""
    for _ in answer:
        return


def test_saved_from_and_restored_into_slots(
    device: Device, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KV cache in a slot of a shared buffer can be saved while the other slots step."""
    monkeypatch.setattr(sequence_pool, "COPIED_MIN", COPIED_MIN)
    path = tmp_path / "cache"
    with LLM(models / "tiny_llama_q4.pte", ByteTokenizer(), device=device, sequences=4) as llm:
        right = [tokens(alone(llm, request)) for request in (FIRST, *ASKED[:2])]
        llm.reset()
        with Engine(llm, batched=True) as engine:
            answers = [engine.submit(request) for request in (FIRST, *ASKED[:2])]
            begun(answers[0])
            assert llm.save(path, SYSTEM) == len(SYSTEM)
            assert [tokens(answer.pieces()) for answer in answers] == right
            llm.reset()
            assert llm.restore(path) == len(SYSTEM)
            answer = engine.submit(ASKED[0])
            assert tokens(answer.pieces()) == right[1]
            assert answer.statistics.reused_tokens == len(SYSTEM)
