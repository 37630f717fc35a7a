"""A prefix that another sequence has prefilled is copied on the GPU: the same bits as with a prefill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import MODELS, TINY

import pteron
from pteron import Device
from pteron.llm import LLM, LanguageModel, Piece, Sampling
from pteron.llm.cache import pool as sequence_pool
from pteron.ops.operand import State

STORIES = Path(pteron.__file__).parent / "models" / "stories15m"
NAMES = ["tiny_llama_fp32", "tiny_llama_q4", "tiny_llama_q4_fp16", "tiny_llama_8da4w", "tiny_llama_q4_static"]
COPIED_MIN = 16  # in these tests: the tiny models' contexts are 64 tokens long
SYSTEM = [1, *(300 + 7 * index % 101 for index in range(22))]
QUESTIONS = [[100 + 31 * index, 200 + index, 400, 17 * index + 5] for index in range(5)]
LONG = [*SYSTEM, *range(60, 60 + COPIED_MIN + 3)]
SAMPLING = Sampling(temperature=0.9, top_k=40, seed=3)


@pytest.fixture(autouse=True)
def _copies_of_short_prefixes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "stories" not in request.fixturenames:
        monkeypatch.setattr(sequence_pool, "COPIED_MIN", COPIED_MIN)


@pytest.fixture(scope="module")
def stories(device: Device) -> Iterator[LLM]:
    with LLM(STORIES, device=device) as made:
        yield made


def pieces(llm: LLM, ids: list[int], count: int = 6, **options: Any) -> list[Piece]:
    return list(llm.generate(ids, max_new_tokens=count, stop_ids=(), **options))


def alone(llm: LLM, question: list[int], **options: Any) -> list[Piece]:
    """The answer of a model whose cache contains only the system prompt."""
    llm.reset()
    pieces(llm, SYSTEM, 1)
    found = pieces(llm, SYSTEM + question, **options)
    assert llm.statistics.reused_tokens == len(SYSTEM)
    llm.reset()
    return found


def poison(model: LanguageModel) -> None:
    """Fill the unused part of the caches with NaN."""
    assert model.delegate is not None
    assert model.row_layout is not None
    for id, rows in model.row_layout.items():
        buffer = model.delegate.states[State(id)]
        start = len(model.tokens) * rows.bytes
        model.device.write(buffer, np.full(buffer.size - start, 0xFF, np.uint8), start)


# A system prompt --------------------------------------------------------------------------------


def test_a_system_prompt_is_read_once(routed_llm: LLM) -> None:
    """Five concurrent streams with the same system prompt: each gives the same bits as alone."""
    right = [alone(routed_llm, question, sampling=SAMPLING) for question in QUESTIONS]
    pieces(routed_llm, SYSTEM, 1)
    found: list[list[Piece]] = []
    streams = [
        routed_llm.generate(SYSTEM + question, max_new_tokens=6, stop_ids=(), sampling=SAMPLING)
        for question in QUESTIONS
    ]
    for stream in streams:
        found.append([next(stream)])
        assert routed_llm.statistics.reused_tokens == len(SYSTEM)
    for column in zip_longest(*streams):
        for index, piece in enumerate(column):
            found[index] += [piece] if piece else []
    assert found == right
    assert routed_llm.pool.live == 5


def test_the_source_keeps_its_own(llm: LLM) -> None:
    """A running stream is not affected by streams that copy its prefix and then diverge from it. They copy
    only positions that have been computed."""
    right = pieces(llm, SYSTEM, 35)
    llm.reset()
    stream = llm.generate(SYSTEM, max_new_tokens=35, stop_ids=())
    found = list(islice(stream, 1))
    for index, question in enumerate(QUESTIONS[:3]):
        ahead = [piece.token for piece in found]
        text = SYSTEM + ahead + question
        pieces(llm, text)
        reused = llm.statistics.reused_tokens
        assert len(SYSTEM) <= reused < len(SYSTEM) + len(ahead), index
        found += list(islice(stream, 5))
    found += list(stream)
    assert found == right


def test_an_idle_conversation_is_not_destroyed(llm: LLM) -> None:
    """Another conversation with the same system prompt gets a copy; the first still has its whole cache."""
    pieces(llm, LONG, 1)
    pieces(llm, SYSTEM + QUESTIONS[0])
    assert llm.statistics.reused_tokens == len(SYSTEM)
    assert llm.pool.live == 2
    pieces(llm, [*LONG, 5])
    assert llm.statistics.reused_tokens == len(LONG)


def test_a_short_beginning_is_read(stories: LLM) -> None:
    """A prefix of 63 tokens in a sequence in use is prefilled again; one of 64 is copied."""
    text = [1, *range(1000, 1063)]
    for count, expected in ((63, 0), (64, 64)):
        stories.reset()
        held = text[:count]
        stream = stories.generate([*held, 7, 8, 9], max_new_tokens=8, stop_ids=())
        next(stream)
        pieces(stories, [*held, 2000, 2001])
        assert stories.statistics.reused_tokens == expected
        stream.close()


def test_the_bound_holds_for_copies(device: Device) -> None:
    """At the bound the least recently used is overwritten by the copy."""
    with LLM(TINY, ByteTokenizer(), device=device, sequences=2) as llm:
        right = pieces(llm, SYSTEM + QUESTIONS[0])
        llm.reset()
        pieces(llm, [1, *range(400, 440)], 1)  # the oldest
        pieces(llm, LONG, 1)
        assert pieces(llm, SYSTEM + QUESTIONS[0])[0].token == right[0].token
        assert llm.statistics.reused_tokens == len(SYSTEM)
        assert llm.pool.live == 2
        pieces(llm, [*LONG, 5])
        assert llm.statistics.reused_tokens == len(LONG)


# What is copied ---------------------------------------------------------------------------------


@pytest.mark.long(every=16)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 17, 40])
def test_rows(device: Device, name: str, count: int) -> None:
    """For caches of every element type, only the rows of the common prefix are copied. Later rows are never
    read: they are NaN in both sequences."""
    with pteron.load(MODELS / f"{name}.pte", device=device) as program:
        first = LanguageModel(program)
        text = [1, *range(40, 80)]
        expected = first.prefill(text[:count])
        expected = first.prefill([9, 8, 7])
        first.reset()
        first.prefill(text[:count])
        first.prefill(text[count:])
        second = first.sequence()
        poison(second)
        assert second.copy(first, [*text[:count], 9, 8, 7], second.claim()) == count
        assert (second.position, second.tokens) == (count, text[:count])
        poison(second)
        found = second.prefill([9, 8, 7])
        assert found.tobytes() == expected.tobytes()
        first.reset()
        poison(first)
        whole = first.prefill(text)
        assert np.isfinite(whole).all()
        second.close()


def test_rows_of_the_first_prompt_read_nothing_behind(device: Device) -> None:
    """Chunks, steps through the host and steps that stay on the GPU, over caches that are NaN from the
    start."""
    for name in NAMES:
        with LLM(MODELS / f"{name}.pte", ByteTokenizer(), device=device) as llm:
            for resident in (None, False) if llm.model.is_resident else (False,):
                right = pieces(llm, [1, *range(40, 80)], 12, resident=resident)
                llm.reset()
                poison(llm.model)
                assert pieces(llm, [1, *range(40, 80)], 12, resident=resident) == right
                llm.reset()


def test_other_states_are_not_copied(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a program has other states than KV caches, nothing is copied, and answers are right."""
    right = [alone(llm, question) for question in QUESTIONS[:2]]
    monkeypatch.setattr(LanguageModel, "row_layout", None)
    pieces(llm, SYSTEM, 1)
    stream = llm.generate(SYSTEM + QUESTIONS[0], max_new_tokens=6, stop_ids=())
    found = [next(stream)]
    assert llm.statistics.reused_tokens == len(SYSTEM)  # the idle one itself
    tokens = [piece.token for piece in pieces(llm, SYSTEM + QUESTIONS[1])]
    assert llm.statistics.reused_tokens == 0
    assert tokens == [piece.token for piece in right[1]]
    assert found + list(stream) == right[0]
    with pytest.raises(pteron.UnsupportedError, match="is not a KV cache with one row per token"):
        llm.model.rows()


def test_a_copy_that_fails(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream gets the device's error, and the next stream gives the right answer."""
    text, other = [1, *range(40, 80)], [1, *range(40, 60), 9, 9]
    with LLM(TINY, ByteTokenizer(), device=device) as llm:
        right = [[piece.token for piece in pieces(llm, ids)] for ids in (text, other)]
        llm.reset()
        pieces(llm, text)
        with monkeypatch.context() as patch:

            def fail(*_: object) -> int:
                raise pteron.DeviceError("injected")

            patch.setattr("pteron.gpu.memory.submit", fail)
            with pytest.raises(pteron.DeviceError, match="injected"):
                pieces(llm, other)
        assert [[piece.token for piece in pieces(llm, ids)] for ids in (text, other)] == right
