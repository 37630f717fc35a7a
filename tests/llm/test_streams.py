"""Streams of one model: each is right, independent of the other streams and of earlier failures."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import RESIDENT, TINY, A, B, run_in_threads

import pteron
from pteron import Device
from pteron.llm import LLM, Sampling
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.engine.turns import Turns


def tokens(llm: LLM, ids: list[int], count: int = 8, **options: Any) -> list[int]:
    return [piece.token for piece in llm.generate(ids, max_new_tokens=count, stop_ids=(), **options)]


def interleaved(llm: LLM, **options: Any) -> list[list[int]]:
    """Both prompts at once, token by token."""
    streams = [llm.generate(ids, max_new_tokens=8, stop_ids=(), **options) for ids in (A, B)]
    found: list[list[int]] = [[], []]
    for pieces in zip_longest(*streams):  # a text may end with a piece more, which completes a character
        for column, piece in zip(found, pieces, strict=True):
            column += [piece.token] if piece else []
    return found


@pytest.fixture(scope="module")
def right() -> dict[str, list[int]]:
    """The tokens of each prompt on a model with an empty cache."""
    found = {}
    for name, ids in (("A", A), ("B", B)):
        with LLM(TINY, ByteTokenizer()) as fresh:
            found[name] = tokens(fresh, ids)
    return found


# Several at once --------------------------------------------------------------------------------


@pytest.mark.long(every=2)
@RESIDENT
def test_interleaved(routed_llm: LLM, right: dict[str, list[int]], resident: bool | None) -> None:
    """The second time on existing plans: a new sequence shares their memory, including what has grown
    since."""
    for _ in range(2):
        assert interleaved(routed_llm, resident=resident) == [right["A"], right["B"]]
        routed_llm.reset()
        assert [tokens(routed_llm, ids) for ids in (A, B)] == [right["A"], right["B"]]


def test_threads(routed_llm: LLM) -> None:
    """Four threads; the samplers of two of them share kernels and nothing else."""
    seeded = [Sampling(temperature=1.0, seed=seed) for seed in range(2)]
    cases = [(A, Sampling()), (B, Sampling()), (A, seeded[0]), (B, seeded[1])]
    right = [tokens(routed_llm, ids, sampling=sampling) for ids, sampling in cases]

    def work(index: int) -> None:
        ids, sampling = cases[index]
        for _ in range(3):
            assert tokens(routed_llm, ids, sampling=sampling) == right[index]

    run_in_threads(work, range(4))


def test_an_abandoned_stream_gives_its_sequence_back(llm: LLM) -> None:
    for _ in range(SEQUENCES_MAX + 2):
        next(llm.generate(A, max_new_tokens=8, stop_ids=()))
    assert llm.pool.live <= 2


@RESIDENT
def test_a_stream_in_a_cycle(
    llm: LLM, right: dict[str, list[int]], resident: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector ends the stream and frees its resources; other streams continue."""
    failed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    for _ in range(3):
        cycle: list[Any] = [llm.generate(A, max_new_tokens=8, stop_ids=(), resident=resident)]
        next(cycle[0])
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert tokens(llm, B, resident=resident) == right["B"]
    assert not failed


def test_reset_leaves_open_streams_alone(llm: LLM, right: dict[str, list[int]]) -> None:
    found = []
    for piece in llm.generate(A, max_new_tokens=8, stop_ids=()):
        llm.reset()
        found.append(piece.token)
    assert found == right["A"]
    llm.reset()
    assert tokens(llm, A) == right["A"]
    assert llm.statistics.reused_tokens == 0


def test_how_much_of_a_prompt_is_read(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each chunk, from what the cache has on."""
    seen: list[int] = []
    collect = Turns.collect

    def noted(turns: Turns) -> Any:
        arrived = collect(turns)
        seen.append(llm.statistics.read_tokens)
        return arrived

    monkeypatch.setattr(Turns, "collect", noted)
    llm.reset()
    size = llm.model.steps_max
    prompt = [5 + index % 40 for index in range(size + 7)]
    list(llm.generate(prompt, max_new_tokens=1))
    assert seen == [size, len(prompt)]
    seen.clear()
    list(llm.generate([*prompt, 3], max_new_tokens=1))
    assert seen == [len(prompt) + 1]
    assert llm.statistics.read_tokens == llm.statistics.prompt_tokens


# Closing ----------------------------------------------------------------------------------------


@pytest.fixture
def own_llm(device: Device) -> LLM:
    """A model that a test may close."""
    return LLM(TINY, ByteTokenizer(), device=device)


def test_closed_under_an_open_stream(own_llm: LLM) -> None:
    llm = own_llm
    stream = llm.generate(A, max_new_tokens=20, stop_ids=())
    next(stream)
    llm.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        list(stream)
    stream.close()
    with pytest.raises(pteron.DeviceError, match="the model is closed"):
        tokens(llm, A)


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_closed_while_a_thread_generates(own_llm: LLM, delay: float) -> None:
    def work() -> None:
        while True:
            tokens(own_llm, A, 20)

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(work)
        time.sleep(delay)
        own_llm.close()
        with pytest.raises(pteron.DeviceError):
            ended.result(30)


# What went wrong before -------------------------------------------------------------------------


@RESIDENT
def test_a_prefill_that_fails_in_its_second_chunk(
    llm: LLM, right: dict[str, list[int]], resident: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = llm.model, []
    assert model.steps_max < len(A)
    advance: Callable[..., None] = model._advance

    def interrupt(chunk: list[int]) -> None:
        calls.append(chunk)
        if len(calls) == 2:
            raise KeyboardInterrupt
        advance(chunk)

    monkeypatch.setattr(model, "_advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokens(llm, A, resident=resident)
    monkeypatch.undo()
    assert model.tokens == A[: model.steps_max]
    assert tokens(llm, A, resident=resident) == right["A"]
