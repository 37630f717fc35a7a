"""The pool of sequences: its limits, which sequence is evicted first, and what is reused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import MODELS

from pteron import Device, InputError
from pteron.errors import OutOfMemory
from pteron.llm import LLM, LanguageModel
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.cache import pool as sequence_pool
from pteron.llm.cache.pool import COPIED_MIN

A, B, C, D = ([first, *range(first + 20, first + 60)] for first in (1, 101, 201, 301))  # nothing in common
PAGES = ("language-models", "reliability")


def load(device: Device, name: str = "tiny_llama_q4", **options: Any) -> LLM:
    return LLM(MODELS / f"{name}.pte", ByteTokenizer(), device=device, **options)


@pytest.fixture
def llm(device: Device) -> Iterator[LLM]:
    with load(device, sequences=3) as made:
        yield made


def tokens(llm: LLM, ids: list[int], count: int = 4, **options: Any) -> list[int]:
    return [piece.token for piece in llm.generate(ids, max_new_tokens=count, stop_ids=(), **options)]


def reused(llm: LLM, ids: list[int]) -> int:
    tokens(llm, ids)
    return llm.statistics.reused_tokens


# Bytes ------------------------------------------------------------------------------------------


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    "name",
    ["tiny_llama_q4", "tiny_llama_q4_fp16", "tiny_llama_8da4w", "tiny_llama_q4_static", "tiny_qwen3_fp32"],
)
def test_bytes_are_known_before(device: Device, name: str) -> None:
    with load(device, name) as llm:
        expected = llm.sequence_bytes
        assert expected > 0
        before = device.buffer_bytes
        made = [llm.model.sequence() for _ in range(3)]
        assert device.buffer_bytes - before == 3 * expected
        assert made[0].sequence_bytes == expected
        for model in made:
            model.close()
        assert device.buffer_bytes == before


def test_counts_and_bytes(llm: LLM) -> None:
    pool = llm.pool
    assert (pool.sequences_max, pool.live, pool.idle, pool.bytes) == (3, 1, 1, llm.sequence_bytes)
    stream = llm.generate(A, max_new_tokens=4, stop_ids=())
    next(stream)
    assert (pool.live, pool.idle) == (1, 0)
    beside = llm.generate(B, max_new_tokens=4, stop_ids=())
    next(beside)
    assert (pool.live, pool.idle, pool.bytes) == (2, 0, 2 * llm.sequence_bytes)
    stream.close()
    assert (pool.live, pool.idle) == (2, 1)
    beside.close()
    assert (pool.live, pool.idle) == (2, 2)
    llm.reset()
    assert (pool.live, pool.idle, pool.bytes) == (1, 1, llm.sequence_bytes)


# Bounds -----------------------------------------------------------------------------------------


def test_no_more_than_there_may_be(llm: LLM) -> None:
    for ids in (A, B, C, D, A, B):
        tokens(llm, ids)
        assert llm.pool.live <= 3
    assert llm.pool.live == 3
    streams = [llm.generate(ids, max_new_tokens=4, stop_ids=()) for ids in (A, B, C, D)]
    for stream in streams[:3]:
        next(stream)
    with pytest.raises(InputError, match=r"^3 generations are open; read one to its end, or close it$"):
        next(streams[3])
    streams[1].close()
    assert tokens(llm, D)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, SEQUENCES_MAX),
        ({"sequences": 40}, 40),
        ({"cache_bytes": 32768}, 1),
        ({"cache_bytes": 5 * 32768 - 1}, 4),
        ({"cache_bytes": 5 * 32768, "sequences": 2}, 2),
        ({"cache_bytes": 5 * 32768, "sequences": 9}, 5),
    ],
)
def test_bounds(device: Device, options: dict[str, Any], bound: int) -> None:
    with load(device, **options) as llm:
        assert llm.sequence_bytes == 32768
        assert llm.pool.sequences_max == bound


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 0}, "sequences must be at least 1, not 0"),
        ({"sequences": 1.5}, "sequences must be an integer"),
        ({"sequences": True}, "sequences must be an integer"),
        (
            {"cache_bytes": 32767},
            "cache_bytes=32,767 is too small: the cache of one sequence takes 32,768 bytes",
        ),
        ({"cache_bytes": "1 GB"}, "cache_bytes must be an integer"),
    ],
)
def test_refused_bounds(device: Device, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(device, **options)


# Who is given away ------------------------------------------------------------------------------


def test_a_conversation_that_comes_back(llm: LLM) -> None:
    """After other conversations, the prefill continues where this one was left."""
    answers = {index: tokens(llm, ids) for index, ids in enumerate((A, B, C))}
    for index, ids in enumerate((A, B, C)):
        again = [*ids, *answers[index], 77]
        tokens(llm, again)
        assert llm.statistics.reused_tokens == len(ids) + 3  # all but the last that was drawn


def test_the_least_recently_used_goes_first(llm: LLM) -> None:
    for ids in (A, B, C):
        assert reused(llm, ids) == 0
    assert reused(llm, A) == len(A) - 1  # now B is the oldest
    assert reused(llm, D) == 0
    assert reused(llm, C) == len(C) - 1
    assert reused(llm, A) == len(A) - 1
    assert reused(llm, B) == 0  # in the place of D
    assert reused(llm, C) == len(C) - 1


def test_use_ends_when_the_stream_does(llm: LLM) -> None:
    """Least recently used is measured at the end of a stream, not at its start: A is closed last."""
    stream = llm.generate(A, max_new_tokens=4, stop_ids=())
    next(stream)
    tokens(llm, B)
    tokens(llm, C)
    stream.close()
    tokens(llm, D)
    assert reused(llm, A) == len(A) - 1
    assert reused(llm, B) == 0


def test_threads_that_lease_at_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread waits for the other once it knows which sequences are free, which no two can do at once."""
    choosing, certain, looks = threading.Barrier(2), LanguageModel.certain, Counter[int]()

    def meeting(model: LanguageModel) -> Any:
        looks[threading.get_ident()] += 1
        if looks[threading.get_ident()] == 2:  # the first is for the shared prefix
            with suppress(threading.BrokenBarrierError):
                choosing.wait(0.2)
        return certain.__get__(model)

    monkeypatch.setattr(LanguageModel, "certain", property(meeting))
    with ThreadPoolExecutor(2) as threads:
        leases = list(threads.map(llm.pool.lease, (A, B)))
    assert choosing.broken
    assert leases[0].model is not leases[1].model


def test_one_in_use_is_never_given_away(llm: LLM) -> None:
    right = tokens(llm, A, 12)
    stream = llm.generate(A, max_new_tokens=12, stop_ids=())
    found = [piece.token for piece in islice(stream, 2)]
    for ids in (B, C, D, B, C, D):
        tokens(llm, ids)
    assert found + [piece.token for piece in stream] == right


def test_answers_are_right_at_any_bound(device: Device) -> None:
    texts = (A, B, [*A[:30], 9, 9], C, A, [*B, 400], D, C)
    found = []
    for sequences in (1, 2, 16):
        with load(device, sequences=sequences) as llm:
            found.append([tokens(llm, ids) for ids in texts])
    assert found[0] == found[1] == found[2]


# Plans ahead ------------------------------------------------------------------------------------


def ahead() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "plans made ahead"]


def test_plans_are_made_ahead(llm: LLM) -> None:
    """Afterwards no length, no position and no number of rows needs a plan or a kernel."""
    assert not ahead()  # a software adapter's cores are needed elsewhere
    tokens(llm, D[:16], 2)  # whose plan is for this length alone
    llm.pool.warm()
    for thread in ahead():
        thread.join(60)
    before = llm.model.method.counters
    assert before.plans > 2
    for length in (2, 31, 7, 1, 16, 25, 4):
        llm.reset()
        tokens(llm, D[:length], 60 - length)
    for first, then in ((9, 17), (31, 2), (23, 31), (5, 9), (30, 28)):
        llm.model.reset()
        llm.model.prefill(D[:first])
        llm.model.prefill(D[:then])
    after = llm.model.method.counters
    assert (after.plans, after.kernels) == (before.plans, before.kernels)

    batched = llm.pool.gather([llm.model])
    for thread in ahead():
        thread.join(60)
    counters = batched.session.counters
    made = counters.plans, counters.kernels
    llm.generate_batch([A[:5], B[:9], C[:3]], max_new_tokens=20, stop_ids=())
    assert (counters.plans, counters.kernels) == made


def test_plans_ahead_end_with_the_pool(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two plans the thread waits for a pause; closing ends it, whatever is left to do."""
    monkeypatch.setattr(sequence_pool, "PAUSE_AWAITED", 60.0)
    llm = load(device)
    stream = llm.generate(A, stop_ids=())
    next(stream)
    llm.pool.warm()
    (thread,) = ahead()
    plans = llm.model.method.counters.plans
    thread.join(0.2)
    assert thread.is_alive()  # a generation is under way
    llm.close()
    thread.join(10)
    assert not thread.is_alive()
    assert llm.model.method.counters.plans <= plans + 1


# No memory for another --------------------------------------------------------------------------


def test_no_room_for_another(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for another sequence an idle one is reused; if there is none, the error says how much
    memory is missing, and other streams are not affected."""
    right = {first: tokens(llm, ids) for first, ids in ((1, A), (101, B))}
    assert llm.pool.live == 2
    monkeypatch.setattr(LanguageModel, "sequence", refuse)
    assert tokens(llm, C)
    assert llm.pool.live == 2
    assert reused(llm, B) == len(B) - 1  # A went, the oldest
    streams = [llm.generate(ids, max_new_tokens=4, stop_ids=()) for ids in (A, B)]
    found = [[next(stream).token] for stream in streams]
    with pytest.raises(
        OutOfMemory, match=r"^2 generations are open, and the device has no memory for the 32,768 by"
    ):
        tokens(llm, C)
    for stream, column in zip(streams, found, strict=True):
        column += [piece.token for piece in stream]
    assert found == [right[1], right[101]]
    monkeypatch.undo()
    streams = [llm.generate(ids, max_new_tokens=4, stop_ids=()) for ids in (A, B, C)]
    assert len([next(stream) for stream in streams]) == 3
    assert llm.pool.live == 3


def refuse(model: LanguageModel) -> LanguageModel:
    raise OutOfMemory("allocating 8,192 bytes: not enough memory left")


def test_a_machine_that_has_no_memory_left(
    llm: LLM, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the adapter uses the machine's memory, the lack of it is found before anything is allocated."""
    if not device.target.is_cpu:
        pytest.skip("WebGPU does not tell what a GPU has left")
    tokens(llm, A)
    memory = tmp_path / "meminfo"
    memory.write_text("MemAvailable: 31 kB\n")
    monkeypatch.setattr("pteron.system._MEMORY", memory)
    before = device.buffer_bytes
    with pytest.raises(
        OutOfMemory, match=r"needs 32,768 bytes on .* for another sequence; this machine has 31,744"
    ):
        llm.model.sequence()
    assert device.buffer_bytes == before
    assert tokens(llm, B)
    assert llm.pool.live == 1


# Other ways to end ------------------------------------------------------------------------------


def test_docs_have_the_bounds() -> None:
    root = Path(__file__).parents[2] / "docs"
    documented = [LLM.__doc__ or "", *((root / f"{page}.md").read_text("utf-8") for page in PAGES)]
    for text, words in zip(
        documented, ("{} if neither", "at most {} sequences", "at most {}, or"), strict=True
    ):
        assert words.format(SEQUENCES_MAX) in " ".join(text.split())
    assert f"A prefix of {COPIED_MIN} tokens" in " ".join(documented[0].split())
