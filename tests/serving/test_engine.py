"""Many concurrent requests: each gets the same answer as it gets alone."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import CHUNK, MODEL, A, Watched, alone, asked, same, tokens

from pteron import Device, DeviceError, InputError, UnsupportedError
from pteron.llm import LLM, LanguageModel, Piece, Sampling
from pteron.llm.engine import load
from pteron.llm.engine.answer import Job
from pteron.llm.engine.load import Totals
from pteron.llm.engine.queue import RequestQueue
from pteron.serving import Answer, Busy, Engine, Load, Request

LENGTHS = (1, 2, 3, 4, 5, 8, 9, 13, 17, 21, 30, 41)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"sampling": Sampling(temperature=0.8, top_k=20, seed=5)},
    {"sampling": Sampling(repetition_penalty=1.3)},
    {"sampling": Sampling(temperature=1.0, top_p=0.9, seed=11), "stop_ids": None},
)


def requests() -> list[Request]:
    """Twelve, of different lengths and settings."""
    made = []
    for index, length in enumerate(LENGTHS):
        ids = tuple((7 * index + 31 * at) % 509 + 3 for at in range(length))
        made.append(asked(ids, 3 + 2 * (index % 5), **SETTINGS[index % 4]))
    return made


@pytest.fixture(params=["together", "one by one", "through the host"])
def served(
    request: pytest.FixtureRequest, tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """Engines with each decode loop; "through the host" is for programs whose loop cannot stay on the GPU."""
    if request.param == "through the host":
        monkeypatch.setattr(LanguageModel, "is_resident", False)
    with Engine(tiny_llm, batched=request.param == "together") as made:
        yield made


@pytest.fixture(scope="module")
def expected(device: Device) -> list[list[Piece]]:
    with LLM(MODEL, ByteTokenizer(), device=device) as llm:
        return [alone(llm, request) for request in requests()]


# Answers ---------------------------------------------------------------------------------------


@pytest.mark.long(every=3)
def test_twelve_at_once(served: Engine, expected: list[list[Piece]]) -> None:
    answers = [served.submit(request) for request in requests()]
    for answer, right in zip(answers, expected, strict=True):
        same(answer.pieces(), right)
        assert answer.text() == "".join(piece.text for piece in right)
    for answer, request in zip(answers, requests(), strict=True):
        assert answer.statistics.prompt_tokens == len(request.ids)
        assert answer.statistics.new_tokens <= request.max_new_tokens
        assert answer.statistics.prompt_seconds > 0
        assert answer.finish_reason in ("length", "stop")


def test_few_sequences(tiny_llm: LLM, expected: list[list[Piece]]) -> None:
    """More requests than can run at once: the others wait in the queue."""
    with Engine(tiny_llm, running=3) as few:
        watched = Watched(few)
        answers = [few.submit(request) for request in requests()]
        for answer, right in zip(answers, expected, strict=True):
            same(answer.pieces(), right)
    running = 0
    for what, *_ in watched.events:
        running += (what == "begin") - (what in ("length", "stop"))
        assert running <= 3
    assert not running


def test_threads(engine: Engine, expected: list[list[Piece]]) -> None:
    """Many threads submit and read at once."""

    def work(offset: int) -> None:
        for index in range(offset, offset + 2):
            same(engine.submit(requests()[index % 12]).pieces(), expected[index % 12])

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(12)))
    assert engine.load.requests == 24
    assert engine.load.running == engine.load.waiting == 0


def working_threads() -> int:
    """All but those that compile or plan, which come and go."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(not name.startswith(("pteron-worker", "plans made ahead")) for name in names)


def test_several_in_an_event_loop(engine: Engine, expected: list[list[Piece]]) -> None:
    before, most = working_threads(), 0

    async def read(request: Request) -> list[Piece]:
        nonlocal most
        found = []
        async for piece in engine.submit(request):
            found.append(piece)
            most = max(most, working_threads())
        return found

    async def read_all() -> list[list[Piece]]:
        return list(await asyncio.gather(*(read(request) for request in requests())))

    for found, right in zip(asyncio.run(read_all()), expected, strict=True):
        same(found, right)
    assert most <= before  # none for a stream


# How an answer ends ----------------------------------------------------------------------------


def test_context(engine: Engine) -> None:
    context = engine.llm.model.context
    answer = engine.submit(asked(A, 1000))
    assert tokens(answer.pieces()) == tokens(alone(engine.llm, asked(A, 1000)))
    assert answer.finish_reason == "context"
    assert answer.statistics.new_tokens == context - len(A) + 1
    full = engine.submit(asked(tuple(range(3, 3 + context)), 10))
    assert len(full.pieces()) == 1
    assert full.finish_reason == "context"


def test_stop_ids(engine: Engine) -> None:
    right = tokens(alone(engine.llm, asked(A)))
    answer = engine.submit(asked(A, stop_ids=[right[3], 400]))
    assert tokens(answer.pieces()) == right[: right.index(right[3])]
    assert answer.finish_reason == "stop"


def test_stop_strings(engine: Engine) -> None:
    """A stop string that spans two tokens: neither appears in the text."""
    right = alone(engine.llm, asked(A, 20))
    spelled = [at for at, piece in enumerate(right[:-1]) if piece.text and right[at + 1].text]
    at = spelled[0]
    stop = right[at].text + right[at + 1].text
    request = asked(A, 20, stop=stop)
    answer = engine.submit(request)
    same(answer.pieces(), alone(engine.llm, request))
    assert stop not in answer.text()
    assert answer.finish_reason == "stop"


# Requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ids": ()}, "at least one token"),
        ({"ids": "abc"}, "must be a sequence of integers"),
        ({"ids": (1, 2.5)}, "must be an integer"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"sampling": {"temperature": 1}}, "sampling must be a Sampling"),
        ({"stop": (1,)}, "stop must be a string"),
        ({"stop_ids": ("a",)}, "must be an integer"),
        ({"stop_ids": (5, -5)}, "stop_ids must be token ids, 0 or more, not -5"),
        ({"seconds": 0}, "seconds must be above 0"),
        ({"seconds": "soon"}, "seconds must be a number"),
        ({"grammar": "[a-f]"}, "grammar must be a Grammar"),
    ],
)
def test_invalid_requests(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request(**{"ids": (1, 2), **settings})


def test_requests_that_the_model_rejects(engine: Engine) -> None:
    with pytest.raises(InputError, match="token 512 is outside the vocabulary"):
        engine.submit(asked((1, 512)))
    with pytest.raises(InputError, match="token 512 is outside the vocabulary"):
        engine.submit(asked(A, sampling=Sampling(logit_bias={512: 1.0})))
    with pytest.raises(InputError, match="bans all 512 tokens"):
        engine.submit(asked(A, sampling=Sampling(logit_bias=dict.fromkeys(range(512), -100.0))))
    with pytest.raises(InputError, match="the prompt has 65 tokens, the context holds 64"):
        engine.submit(asked((5,) * 65))
    with pytest.raises(InputError, match="a request must be a Request"):
        engine.submit((1, 2))  # type: ignore[arg-type]
    assert engine.load.requests == 0


@pytest.mark.long(every=2)
@pytest.mark.parametrize("settings", [{"running": 0}, {"waiting": 0}, {"running": 1.5}, {"waiting": "a"}])
def test_invalid_limits(tiny_llm: LLM, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Engine(tiny_llm, **settings)


def test_programs_of_one_chunk_size(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def chunks(*_: object) -> None:
        raise UnsupportedError("one size")

    monkeypatch.setattr(LanguageModel, "chunks", chunks)
    with pytest.raises(UnsupportedError, match="one size"):
        Engine(tiny_llm)


def test_the_load(engine: Engine) -> None:
    before = engine.load
    assert before == Load(0, 0, 1, before.cache_bytes, 0, 0.0, 0, 0, 0, 0, 0, 0)
    assert before.cache_bytes > 0
    tokens = [piece.token for piece in engine.submit(asked(A, 5)).pieces()]
    engine.submit(asked(A, 4)).pieces()
    load = engine.load
    assert (load.requests, load.prompt_tokens, load.new_tokens) == (2, 2 * len(A), 9)
    assert load.reused_tokens == len(A) - 1
    assert load.tokens_per_second > 0
    assert (load.cancelled, load.failed) == (0, 0)
    engine.llm.model.pace.steps = 8  # a stop token ends an answer amid the draws of a submission
    ended = engine.submit(asked(A, stop_ids={tokens[2]}))
    assert len(ended.pieces()) == ended.statistics.new_tokens == tokens.index(tokens[2]) + 1
    assert engine.load.new_tokens == load.new_tokens + ended.statistics.new_tokens


def test_the_rate_of_tokens_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(load, "monotonic", lambda: now)
    totals, rates = Totals(), list[float]()
    for second, count in ((100.0, 10), (101.0, 10), (101.5, 10), (109.0, 5), (130.0, 0)):
        now = second
        totals.add_tokens(count)
        rates.append(round(totals.rate(), 3))
    assert rates == [10, 20, 20, round(5 / 7.5, 3), 0]  # of the first second at least
    assert totals.new_tokens == 35


def test_when_a_refused_request_may_try_again() -> None:
    """As long as the queue takes to empty by the duration of earlier requests, from 1 s to 60 s."""
    totals = Totals()
    assert totals.retry_seconds(64, 1) == 1
    for reason, seconds in (("stop", 10.0), ("cancelled", 20.0), ("error", None)):
        totals.add_ended(reason, seconds)
    assert totals.request_seconds == 12  # a moving average
    assert [totals.retry_seconds(*each) for each in ((6, 3), (1, 16), (90, 2))] == [24, 1, 60]
    assert (totals.cancelled, totals.failed) == (1, 1)


def test_jobs_that_wait() -> None:
    """First come first served, without those that were cancelled or are past their deadline."""
    queue, jobs = RequestQueue(3), [Job(Request((1,), seconds=seconds)) for seconds in (50, 10, 90)]
    for job in jobs:
        queue.put(job, lambda: 7.0)
    assert [job.number for job in jobs] == [0, 1, 2]
    assert queue.deadline == jobs[1].deadline
    with pytest.raises(Busy, match="3 requests wait") as refused:
        queue.put(Job(Request((1,))), lambda: 7.0)
    assert refused.value.seconds == 7
    assert queue.expire(jobs[1].deadline - 1) == []
    assert queue.expire(jobs[1].deadline) == [jobs[1]]
    assert (queue.deadline, queue.accepted) == (jobs[0].deadline, 3)
    jobs[2].cancel()
    assert len(queue) == 1
    last = Job(Request((1,)))
    queue.put(last, lambda: 7.0)
    assert queue.expire(0) == [jobs[2]]
    queue.refuse("first")
    queue.refuse("second")
    with pytest.raises(DeviceError, match="first"):
        queue.put(Job(Request((1,))), lambda: 7.0)
    assert [queue.take(), queue.take(), queue.take()] == [jobs[0], last, None]
    assert queue.expire(0) == []
    assert queue.deadline == math.inf


def test_what_is_public() -> None:
    import pteron.serving

    assert sorted(pteron.serving.__all__) == pteron.serving.__all__
    assert {Answer, Busy, Engine, Load, Request} <= {
        getattr(pteron.serving, name) for name in pteron.serving.__all__
    }
    assert len(A) > 2 * CHUNK
