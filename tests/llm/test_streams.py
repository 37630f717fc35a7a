"""Streams of one model: each is right, independent of the other streams and of earlier failures."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import RESIDENT, TINY, A, B, run_in_threads

import pteron
from pteron import Device
from pteron.llm import LLM, Sampling
from pteron.llm.arguments import SEQUENCES_MAX


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


@RESIDENT
def test_interleaved(routed_llm: LLM, right: dict[str, list[int]], resident: bool | None) -> None:
    assert interleaved(routed_llm, resident=resident) == [right["A"], right["B"]]
    assert tokens(routed_llm, A) == right["A"]


@RESIDENT
def test_interleaved_after_others(
    routed_llm: LLM, right: dict[str, list[int]], resident: bool | None
) -> None:
    """A new sequence on existing plans shares their memory, including what has grown since."""
    assert [tokens(routed_llm, ids) for ids in (A, B)] == [right["A"], right["B"]]
    assert interleaved(routed_llm, resident=resident) == [right["A"], right["B"]]


def test_streams_of_one_sampler_setting(routed_llm: LLM) -> None:
    """Samplers with equal settings share their kernels, but not their token counts or draws."""
    sampling = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5)
    alone = [tokens(routed_llm, ids, sampling=sampling) for ids in (A, B)]
    assert interleaved(routed_llm, sampling=sampling) == alone


def test_threads(routed_llm: LLM, right: dict[str, list[int]]) -> None:
    def work(case: tuple[str, list[int]]) -> None:
        name, ids = case
        for _ in range(3):
            assert tokens(routed_llm, ids) == right[name]

    run_in_threads(work, (("A", A), ("B", B)) * 2)


def test_threads_with_their_own_seeds(llm: LLM) -> None:
    """Four threads whose samplers share kernels and nothing else."""
    samplings = [Sampling(temperature=1.0, seed=seed) for seed in range(4)]
    right = {sampling: tokens(llm, A, sampling=sampling) for sampling in samplings}

    def work(sampling: Sampling) -> None:
        for _ in range(2):
            assert tokens(llm, A, sampling=sampling) == right[sampling]

    run_in_threads(work, samplings)


def test_a_suspended_stream(llm: LLM, right: dict[str, list[int]]) -> None:
    kept = llm.generate(A, max_new_tokens=8, stop_ids=())
    start = [piece.token for piece in islice(kept, 2)]
    assert tokens(llm, B) == right["B"]
    assert start + [piece.token for piece in kept] == right["A"]


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


def test_too_many_open_streams(llm: LLM, right: dict[str, list[int]]) -> None:
    streams = [llm.generate(A, max_new_tokens=4, stop_ids=()) for _ in range(SEQUENCES_MAX + 1)]
    for stream in streams[:-1]:
        next(stream)
    with pytest.raises(pteron.InputError, match=f"{SEQUENCES_MAX} generations are open"):
        next(streams[-1])
    streams[0].close()
    assert tokens(llm, B) == right["B"]


def test_reset_leaves_open_streams_alone(llm: LLM, right: dict[str, list[int]]) -> None:
    found = []
    for piece in llm.generate(A, max_new_tokens=8, stop_ids=()):
        llm.reset()
        found.append(piece.token)
    assert found == right["A"]
    llm.reset()
    assert tokens(llm, A) == right["A"]
    assert llm.statistics.reused_tokens == 0


def test_reset_frees_sequences_that_are_idle(llm: LLM, right: dict[str, list[int]]) -> None:
    open_one = llm.generate(A, max_new_tokens=8, stop_ids=())
    start = next(open_one).token
    assert tokens(llm, B) == right["B"]
    in_use = llm.model.device.buffer_bytes
    llm.reset()
    assert llm.model.device.buffer_bytes < in_use
    assert [start, *(piece.token for piece in open_one)] == right["A"]
    assert tokens(llm, B) == right["B"]


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
def test_a_prefill_that_fails(llm: LLM, right: dict[str, list[int]], resident: bool | None) -> None:
    with pytest.raises(pteron.InputError, match="token 1000000 is outside the vocabulary"):
        tokens(llm, [*A, 10**6], resident=resident)
    assert tokens(llm, A, resident=resident) == right["A"]


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
