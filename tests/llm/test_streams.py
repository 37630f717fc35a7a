"""Streams of one model: each is right, independent of the other streams and of earlier failures."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer

import pteron
from pteron import Device
from pteron.llm import LLM, Sampling
from pteron.llm.arguments import SEQUENCES_MAX

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
A = [1, *range(40, 80)]
B = [*A[:20], 200, 90, 17, 111, 5]
RESIDENT = pytest.mark.parametrize("resident", [None, False], ids=["resident", "stepwise"])


@pytest.fixture(params=["software", "hardware"])
def llm(request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """A model whose kernels are those for CPUs, and one whose kernels are those for GPUs."""
    monkeypatch.setattr(device, "target", replace(device.target, is_cpu=request.param == "software"))
    with LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device) as made:
        yield made


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
        with LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer()) as fresh:
            found[name] = tokens(fresh, ids)
    return found


# Several at once --------------------------------------------------------------------------------


@RESIDENT
def test_interleaved(llm: LLM, right: dict[str, list[int]], resident: bool | None) -> None:
    assert interleaved(llm, resident=resident) == [right["A"], right["B"]]
    assert tokens(llm, A) == right["A"]


@RESIDENT
def test_interleaved_after_others(llm: LLM, right: dict[str, list[int]], resident: bool | None) -> None:
    """A new sequence on existing plans shares their memory, including what has grown since."""
    assert [tokens(llm, ids) for ids in (A, B)] == [right["A"], right["B"]]
    assert interleaved(llm, resident=resident) == [right["A"], right["B"]]


def test_streams_of_one_sampler_setting(llm: LLM) -> None:
    """Samplers with equal settings share their kernels, but not their token counts or draws."""
    sampling = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5)
    alone = [tokens(llm, ids, sampling=sampling) for ids in (A, B)]
    assert interleaved(llm, sampling=sampling) == alone


def test_threads(llm: LLM, right: dict[str, list[int]]) -> None:
    wrong: list[object] = []

    def work(name: str, ids: list[int]) -> None:
        try:
            for _ in range(4):
                if tokens(llm, ids) != right[name]:
                    wrong.append(name)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in (("A", A), ("B", B)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


def test_threads_with_their_own_seeds(llm: LLM) -> None:
    """Six threads whose samplers share kernels and nothing else."""
    samplings = [Sampling(temperature=1.0, seed=seed) for seed in range(6)]
    right = [tokens(llm, A, sampling=sampling) for sampling in samplings]
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for _ in range(3):
                if tokens(llm, A, sampling=samplings[number]) != right[number]:
                    wrong.append(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


def test_a_suspended_stream(llm: LLM, right: dict[str, list[int]]) -> None:
    kept = llm.generate(A, max_new_tokens=8, stop_ids=())
    start = [piece.token for piece in islice(kept, 2)]
    assert tokens(llm, B) == right["B"]
    assert start + [piece.token for piece in kept] == right["A"]


def test_an_old_stream_closed_late(llm: LLM, right: dict[str, list[int]]) -> None:
    old = llm.generate(A, max_new_tokens=8, stop_ids=())
    next(old)
    tokens(llm, B)
    old.close()
    assert tokens(llm, A) == right["A"]
    assert tokens(llm, B) == right["B"]


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


def test_a_stream_that_ends_late(llm: LLM, right: dict[str, list[int]]) -> None:
    """The collector may free the lease before it ends the stream; the sequence may then have a new owner."""
    old = llm.generate(A, max_new_tokens=8, stop_ids=())
    next(old)
    lease = llm.pool._entries[0].lease
    assert lease is not None
    held = lease()
    assert held is not None
    held.close()  # as if collected
    stream = llm.generate(B, max_new_tokens=8, stop_ids=())
    found = [next(stream).token]
    old.close()
    found += [piece.token for piece in stream]
    assert found[:8] == right["B"]


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


def test_a_prefix_is_found_again(llm: LLM) -> None:
    tokens(llm, A)
    tokens(llm, B)
    assert llm.statistics.reused_tokens == 20


# Closing ----------------------------------------------------------------------------------------


def test_closed_under_an_open_stream(llm: LLM) -> None:
    stream = llm.generate(A, max_new_tokens=20, stop_ids=())
    next(stream)
    llm.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        list(stream)
    stream.close()
    with pytest.raises(pteron.DeviceError, match="the model is closed"):
        tokens(llm, A)


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05])
def test_closed_while_a_thread_generates(llm: LLM, delay: float) -> None:
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                tokens(llm, A, 20)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(delay)
    llm.close()
    thread.join(30)
    assert [type(error) for error in ended] == [pteron.DeviceError]


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
    name = "_advance"
    advance: Callable[..., None] = model._advance

    def interrupt(chunk: list[int]) -> None:
        calls.append(chunk)
        if len(calls) == 2:
            raise KeyboardInterrupt
        advance(chunk)

    monkeypatch.setattr(model, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokens(llm, A, resident=resident)
    monkeypatch.undo()
    assert model.tokens == A[: model.steps_max]
    assert tokens(llm, A, resident=resident) == right["A"]
