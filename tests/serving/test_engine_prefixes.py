"""Requests with a common prefix that arrive together: one prefills the prefix, the others wait for it and
get a copy. Other requests do not wait, and a request stops waiting if the reader of the prefix ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import CHUNK, MODEL, Watched, asked, either_way, read_all, tokens_alone

from pteron import Device, DeviceError
from pteron.llm import LLM, LanguageModel, Sampling
from pteron.llm.cache import pool as sequence_pool
from pteron.llm.engine import scheduler
from pteron.llm.engine.answer import Job
from pteron.llm.engine.queue import PrefixWaitlist
from pteron.serving import Answer, Engine, Request

COPIED_MIN = 16
SYSTEM = (1, *(300 + 7 * index % 101 for index in range(22)))  # it ends inside a chunk
OTHER = (7, 9, 11)


@pytest.fixture(autouse=True)
def _copied_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_pool, "COPIED_MIN", COPIED_MIN)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All prompt tokens that the model prefilled."""
    made: list[int] = []
    submit = LanguageModel.submit

    def counting(model: LanguageModel, ids: list[int], *arguments: Any) -> int:
        made.extend(ids)
        return submit(model, ids, *arguments)

    monkeypatch.setattr(LanguageModel, "submit", counting)
    return made


@pytest.fixture
def few(request: pytest.FixtureRequest, tiny_llm: LLM, device: Device) -> Iterator[Engine]:
    """An engine with few sequences, batched or not."""
    sequences, batched = request.param
    with (
        LLM(MODEL, ByteTokenizer(), device=device, sequences=sequences) as llm,
        Engine(llm, batched=batched) as engine,
    ):
        yield engine


def of(*tail: int, count: int = 7, **settings: Any) -> Request:
    return asked((*SYSTEM, *tail), count, **settings)


def asked_at_once(
    engine: Engine, watched: Watched, requests: list[Request], until: tuple[str, int] | None = None
) -> list[Answer]:
    """Queue all requests before the engine looks at any of them; then let it run, up to `until` if given."""
    (first,) = watched.submit([asked((3,), 1)], "length", engine.load.requests)
    answers = [engine.submit(request) for request in requests]
    if until:
        watched.go_to(*until)
    else:
        watched.go()
    assert len(first.pieces()) == 1
    return answers


def reused(answers: list[Answer]) -> list[int]:
    return [answer.statistics.reused_tokens for answer in answers]


@pytest.mark.long(every=3)
@pytest.mark.parametrize("few", [(2, False), (3, True), (16, False), (16, True)], indirect=True)
def test_a_prefix_is_read_once(few: Engine, read: list[int]) -> None:
    """Twelve requests at once share a prefix, with fewer sequences than requests or with enough."""
    watched = Watched(few)
    tails = [(100 + 31 * index, 200 + index, 17 * index + 5)[: 1 + index % 3] for index in range(12)]
    drawn = [Sampling(), Sampling(temperature=0.9, seed=4)]
    requests = [of(*tail, sampling=drawn[index % 2]) for index, tail in enumerate(tails)]
    right = tokens_alone(few.llm, requests)
    read.clear()
    answers = asked_at_once(few, watched, requests)
    assert read_all(answers) == right
    assert reused(answers) == [0, *[len(SYSTEM)] * 11]
    assert len(read) == 1 + len(SYSTEM) + sum(map(len, tails))
    assert few.load.reused_tokens == 11 * len(SYSTEM)


@pytest.mark.long(every=2)
@either_way
def test_the_same_several_times(engine: Engine, watched: Watched, read: list[int]) -> None:
    """Equal prompts: each request still prefills the last token, because it needs the logits."""
    requests = [of(5, sampling=Sampling(temperature=1.0, seed=seed)) for seed in range(4)]
    right = tokens_alone(engine.llm, requests)
    read.clear()
    answers = asked_at_once(engine, watched, requests)
    assert read_all(answers) == right
    assert reused(answers) == [0, *[len(SYSTEM)] * 3]
    assert len(read) == 1 + len(SYSTEM) + 4


@pytest.mark.long(every=2)
@either_way
def test_nested_prefixes(engine: Engine, watched: Watched, read: list[int]) -> None:
    """Each shared part of nested prefixes is prefilled once, in any order of the requests."""
    first, second = (1, *range(40, 57)), tuple(range(100, 117))
    third = tuple(range(200, 216))
    prompts = [
        (*first, *second, *third, 9),
        (*first, 7),
        (*first, *second, 11, 13),
        (*first, *second, *third, 17),
        (*first, 19, 23),
    ]
    for order in (prompts, prompts[::-1]):
        requests = [asked(ids, 6) for ids in order]
        right = tokens_alone(engine.llm, requests)
        read.clear()
        answers = asked_at_once(engine, watched, requests)
        assert read_all(answers) == right
        different = {ids[:length] for ids in order for length in range(1, len(ids) + 1)}
        assert len(read) == 1 + len(different)


def test_it_starts_after_the_chunk_that_ends_the_prefix(engine: Engine, watched: Watched) -> None:
    """A waiting request starts after the chunk that ends the prefix, not after the reader's whole prompt."""
    tail = tuple(range(60, 90))
    answers = asked_at_once(engine, watched, [of(*tail, count=2), of(5, count=2)])
    read_all(answers)
    events = [(what, job) for what, job, _ in watched.events]
    before = events[: events.index(("begin", 2))].count(("prefill", 1))
    assert before * CHUNK >= len(SYSTEM)
    assert events.count(("prefill", 1)) > before  # the reader's prompt was not finished
    assert ("hold", 2, len(SYSTEM)) in watched.events


def test_other_requests_do_not_wait(engine: Engine, watched: Watched) -> None:
    """A request queued behind ones that wait for a prefix starts before them."""
    requests = [of(5, count=2), of(6, count=2), asked(OTHER, 2), of(8, count=2)]
    right = tokens_alone(engine.llm, requests)
    assert read_all(asked_at_once(engine, watched, requests)) == right
    assert watched.of("begin")[1:] == [1, 3, 2, 4]
    assert watched.of("hold") == [2, 4]


def test_a_prefix_of_another_adapter_is_not_waited_for() -> None:
    """Nor is one that is submitted already, or whose request has ended."""
    reader, waiting = Job(Request(SYSTEM)), Job(Request((*SYSTEM, 5)))
    other = replace(reader.request, adapter="sql")
    source: Any = SimpleNamespace(job=reader, model="model", reason="", is_prefilled=False, submitted=4)
    pool: Any = SimpleNamespace(source_worth_waiting_for=lambda _, coming, __: next(iter(coming), None))
    waits = PrefixWaitlist(pool)
    assert waits.tokens_awaited(waiting, [source]) == len(SYSTEM)
    for name, value in (("submitted", len(SYSTEM)), ("reason", "cancelled")):
        kept = getattr(source, name)
        setattr(source, name, value)
        assert waits.tokens_awaited(waiting, []) == 0
        setattr(source, name, kept)
    waits.drop(waiting)
    source.job = Job(other)
    assert waits.tokens_awaited(waiting, [source]) == len(waits) == 0


def test_waiting_for_a_prefix_counts_as_running(tiny_llm: LLM) -> None:
    """A request that waits for a prefix counts as running: with `running=2` no third request starts."""
    with Engine(tiny_llm, running=2) as engine:
        watched = Watched(engine)
        requests = [of(5, count=2), of(6, count=2), asked(OTHER, 2)]
        right = tokens_alone(engine.llm, requests)
        answers = asked_at_once(engine, watched, requests)
        assert read_all(answers) == right
        assert watched.of("begin")[1:] == [1, 2, 3]


def test_no_wait_for_a_cached_prefix(engine: Engine, watched: Watched) -> None:
    """Requests do not wait for a prefix that is in the cache already, is too short, or is hardly longer than
    a cached one."""
    right = tokens_alone(engine.llm, [of(5), of(6)])
    read_all([engine.submit(of(4))])
    assert read_all(asked_at_once(engine, watched, [of(5), of(6)])) == right
    assert not watched.of("hold")
    engine.llm.reset()
    short = SYSTEM[: COPIED_MIN - 1]
    read_all([engine.submit(asked((*short, tail), 2)) for tail in (5, 6)])
    assert not watched.of("hold")


def test_a_program_that_cannot_copy(
    engine: Engine, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [of(5), of(6)]
    right = tokens_alone(engine.llm, requests)
    monkeypatch.setattr(LanguageModel, "row_layout", None)
    answers = asked_at_once(engine, watched, requests)
    assert read_all(answers) == right
    assert reused(answers) == [0, 0]
    assert not watched.of("hold")


# A reader that ends -----------------------------------------------------------------------------


@either_way
def test_a_reader_that_is_cancelled(engine: Engine, watched: Watched, read: list[int]) -> None:
    """The next request continues the prefill where the cancelled one stopped, and the others wait for it."""
    requests = [of(5), of(6), of(7), of(8)]
    right = tokens_alone(engine.llm, requests)
    read.clear()
    answers = asked_at_once(engine, watched, requests, ("hold", 4))
    answers[0].cancel()
    watched.go()
    assert read_all(answers[1:]) == right[1:]
    assert answers[0].finish_reason == "cancelled"
    assert reused(answers)[2:] == [len(SYSTEM)] * 2
    assert len(read) == 1 + len(SYSTEM) + 3


@pytest.mark.long(every=2)
@either_way
def test_a_reader_that_fails(engine: Engine, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [of(5), of(6), of(7)]
    right = tokens_alone(engine.llm, requests)
    submit = LanguageModel.submit
    failed: list[LanguageModel] = []

    def failing(model: LanguageModel, ids: list[int], *arguments: Any) -> int:
        if not failed and model.position == 2 * CHUNK:
            failed.append(model)
            raise DeviceError("injected")
        return submit(model, ids, *arguments)

    monkeypatch.setattr(LanguageModel, "submit", failing)
    answers = asked_at_once(engine, watched, requests)
    with pytest.raises(DeviceError, match="injected"):
        answers[0].pieces()
    assert read_all(answers[1:]) == right[1:]
    assert reused(answers)[2] == len(SYSTEM)


# Those that wait --------------------------------------------------------------------------------


def test_waiting_requests_can_end(engine: Engine, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are cancelled or time out while they wait end at once; the others are not affected."""
    requests = [of(5), of(6), of(7, seconds=600), of(8)]
    right = tokens_alone(engine.llm, [requests[0], requests[3]])
    answers = asked_at_once(engine, watched, requests, ("hold", 4))
    assert (engine.load.running, engine.load.waiting) == (1, 3)
    answers[1].cancel()
    monkeypatch.setattr(scheduler, "monotonic", lambda: monotonic() + 700)
    watched.go()
    assert read_all([answers[0], answers[3]]) == right
    assert read_all(answers[1:3]) == [[], []]
    assert [answer.finish_reason for answer in answers[1:3]] == ["cancelled", "time"]
    assert not {2, 3} & set(watched.of("begin"))
    assert engine.drain(60)


def test_an_engine_that_is_closed(tiny_llm: LLM) -> None:
    engine = Engine(tiny_llm)
    watched = Watched(engine)
    answers = asked_at_once(engine, watched, [of(5), of(6), of(7)], ("hold", 3))
    engine.stop()
    watched.go()
    engine.close()
    for answer in answers:
        with pytest.raises(DeviceError, match="closed before the answer was complete"):
            answer.pieces()
    assert engine.drain(0)


# A prefix of a running request -----------------------------------------------------------------

FIRST = of(count=30)
FOLLOWING = [of(100 + 31 * index, 200 + index, 17 * index + 5, count=9) for index in range(6)]


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    "few", [(sequences, batched) for sequences in (3, 8) for batched in (False, True)], indirect=True
)
def test_a_running_request_has_the_prefix(few: Engine) -> None:
    """The prefix is copied, from a cache of its own or from a slot."""
    llm = few.llm
    right = tokens_alone(llm, [FIRST, *FOLLOWING])
    first = few.submit(FIRST)
    next(iter(first))  # its prompt has been read
    answers = [few.submit(request) for request in FOLLOWING]
    assert read_all([first, *answers]) == right
    assert reused(answers) == [len(SYSTEM)] * 6
    again = [few.submit(request) for request in (*FOLLOWING, FIRST)]
    assert read_all(again) == [*right[1:], right[0]]
    sequences = few.slots or llm.pool.live
    assert llm.pool.bytes == sequences * llm.sequence_bytes


@pytest.mark.parametrize("few", [(4, True)], indirect=True)
def test_saved_from_and_restored_into_slots(few: Engine, tmp_path: Path) -> None:
    """A KV cache in a slot of a shared buffer can be saved while the other slots step."""
    llm, path = few.llm, tmp_path / "cache"
    assert isinstance(llm, LLM)
    right = tokens_alone(llm, [FIRST, *FOLLOWING[:2]])
    answers = [few.submit(request) for request in (FIRST, *FOLLOWING[:2])]
    next(iter(answers[0]))
    assert llm.save(path, SYSTEM) == len(SYSTEM)
    assert read_all(answers) == right
    llm.reset()
    assert llm.restore(path) == len(SYSTEM)
    answer = few.submit(FOLLOWING[0])
    assert read_all([answer]) == [right[1]]
    assert reused([answer]) == [len(SYSTEM)]
