"""Requests that end early: cancelled in every phase, timed out, drained, closed. Other requests are not
affected."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_fixtures import PATIENCE, SHORT, A, B, Watched, alone, asked, either_way, tokens, tokens_alone

from pteron import DeviceError, PteronError
from pteron.llm import LLM
from pteron.llm.engine import scheduler
from pteron.serving import Answer, Busy, Engine

LONG = tuple(range(300, 340))
PHASES = pytest.mark.parametrize("phase", ["begin", "prefill", "step"])


@pytest.fixture
def single(tiny_llm: LLM) -> Iterator[tuple[Engine, Watched]]:
    """An engine that answers one request at a time, and lets two wait."""
    with Engine(tiny_llm, running=1, waiting=2) as made:
        watched = Watched(made)
        yield made, watched
        watched.go()


def cancel(held: list[Answer]) -> None:
    held[0].cancel()


def drop(held: list[Answer]) -> None:
    held.clear()


def drop_in_a_cycle(held: list[Answer]) -> None:
    cycle: list[Any] = [held.pop()]
    cycle.append(cycle)
    del cycle
    gc.collect()


def quiet(engine: Engine) -> None:
    """Wait until all submitted requests have ended."""
    assert engine.scheduler.idle.wait(lambda: not engine.queue.open, PATIENCE)


# Cancelled -------------------------------------------------------------------------------------


@pytest.mark.long(every=20)  # these have every value of each parameter
@either_way
@PHASES
@pytest.mark.parametrize("leave", [cancel, drop, drop_in_a_cycle])
def test_cancelled_or_dropped_while_running(
    engine: Engine, watched: Watched, phase: str, leave: Callable[[list[Answer]], None]
) -> None:
    """A cancelled or dropped request ends within one step and frees its sequence; the other continues."""
    (expected,) = tokens_alone(engine.llm, [asked(A, 20)])
    beside, *held = watched.submit([asked(A, 20), asked(LONG, 20)], phase, 1)
    before = len(watched.events)
    leave(held)
    watched.go()
    assert tokens(beside.pieces()) == expected
    quiet(engine)
    after = [(what, job) for what, job, _ in watched.events[before:] if job == 1]
    assert after[-1] == ("cancelled", 1)
    assert len(after) <= 2
    load = engine.load
    assert (load.running, load.waiting, load.cancelled, load.failed) == (0, 0, 1, 0)
    assert engine.llm.pool.idle == engine.llm.pool.live
    if held:
        assert held[0].finish_reason == "cancelled"
        assert tokens(held[0].pieces()) == tokens(alone(engine.llm, asked(LONG, 20)))[: len(held[0].pieces())]
        held[0].cancel()
        assert engine.load.cancelled == 1


@either_way
def test_several_cancelled_at_once(engine: Engine, watched: Watched) -> None:
    """Each of them ends within one step."""
    answers = watched.submit([asked(A, 30), asked(B, 30), asked(SHORT, 30)], "step", 2)
    before = len(watched.events)
    for answer in answers:
        answer.cancel()
    watched.go()
    quiet(engine)
    for number in range(3):
        after = [what for what, job, _ in watched.events[before:] if job == number]
        assert after[-1] == "cancelled"
        assert len(after) <= 2
    assert engine.load.cancelled == 3


@pytest.mark.long(every=3)
@pytest.mark.parametrize("leave", [cancel, drop, drop_in_a_cycle])
def test_cancelled_or_dropped_while_waiting(
    single: tuple[Engine, Watched], leave: Callable[[list[Answer]], None]
) -> None:
    """A waiting request that leaves frees its place in the queue at once, before the engine thread runs."""
    engine, watched = single
    (first,) = watched.submit([asked(A, 4)], "prefill")
    held = [engine.submit(asked(B, 4))]
    assert not engine.is_full
    third = engine.submit(asked(B, 4))
    assert engine.is_full
    assert engine.load.waiting == 2
    with pytest.raises(Busy, match="2 requests wait, the most allowed") as refused:
        engine.submit(asked(B, 4))
    assert refused.value.seconds >= 1
    assert isinstance(refused.value, PteronError)
    leave(held)
    assert engine.load.waiting == 1
    assert not engine.is_full
    fourth = engine.submit(asked(B, 4))
    watched.go()
    assert [len(answer.pieces()) for answer in (first, third, fourth)] == [4, 4, 4]
    assert watched.of("begin") == [0, 2, 3]
    assert [answer.pieces() for answer in held] == [[]] * len(held)
    assert engine.load.cancelled == 1
    assert engine.load.requests == 4


def test_request_seconds_exclude_the_wait(
    single: tuple[Engine, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retry-After is computed from these seconds, so they must not include the time in the queue."""
    engine, watched = single
    now = 0.0
    monkeypatch.setattr(scheduler, "monotonic", lambda: now)
    (first,) = watched.submit([asked(A, 4)], "prefill")
    second, third = engine.submit(asked(B, 4)), engine.submit(asked(B, 4))
    third.cancel()  # it never starts
    now = 5.0
    watched.go()
    assert [len(answer.pieces()) for answer in (first, second, third)] == [4, 4, 0]
    quiet(engine)
    # The moving average of 5 s and 0 s: the second weighs 1/5.
    assert engine.scheduler.totals.request_seconds == 4.0


def test_cancelled_after_its_end(engine: Engine) -> None:
    answer = engine.submit(asked(A, 3))
    answer.pieces()
    answer.cancel()
    assert answer.finish_reason == "length"
    assert engine.load.cancelled == 0


def test_a_slow_reader(engine: Engine) -> None:
    """A slow reader does not block the engine, and still receives the whole answer."""
    expected = tokens(alone(engine.llm, asked(A, 30)))
    slow = engine.submit(asked(A, 30))
    start = next(iter(slow))
    quiet(engine)
    assert slow.finish_reason == "length"
    assert start.token == expected[0]
    assert tokens(slow.pieces()) == expected


# Out of time -----------------------------------------------------------------------------------


def test_time_is_up(engine: Engine, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = tokens_alone(engine.llm, [asked(A, 30)])
    (answer,) = watched.submit([asked(A, 30, seconds=600)], "step")
    monkeypatch.setattr(scheduler, "monotonic", lambda: time.monotonic() + 700)
    watched.go()
    found = tokens(answer.pieces())
    assert answer.finish_reason == "time"
    assert found == expected[: len(found)]
    assert len(found) < 30


def test_time_is_up_before_the_first_token(single: tuple[Engine, Watched]) -> None:
    engine, watched = single
    (first,) = watched.submit([asked(A, 4)], "step")
    second = engine.submit(asked(B, 4, seconds=0.05))
    time.sleep(0.06)
    watched.go()
    assert second.pieces() == []
    assert second.finish_reason == "time"
    assert second.statistics.queue_seconds >= 0.05
    assert len(first.pieces()) == 4
    assert watched.of("begin") == [0]


# Drained ---------------------------------------------------------------------------------------


def test_drained(single: tuple[Engine, Watched]) -> None:
    """Accepted requests are finished, including the waiting ones; new requests are refused."""
    engine, watched = single
    answers = watched.submit([asked(ids, 4) for ids in (A, B)], "prefill")
    assert engine.drain(0.01) is False
    with pytest.raises(DeviceError, match="accepts no more requests"):
        engine.submit(asked(A))
    watched.go()
    assert engine.drain(PATIENCE) is True
    assert [answer.finish_reason for answer in answers] == ["length", "length"]
    assert engine.drain() is True


# Closed ----------------------------------------------------------------------------------------


@pytest.mark.long(every=10)
@either_way
@PHASES
def test_closed_with_open_streams(engine: Engine, watched: Watched, phase: str) -> None:
    """Readers in threads and in event loops get an error; the model is still usable."""
    (expected,) = tokens_alone(engine.llm, [asked(A, 30)])
    answers = watched.submit([asked(ids, 30) for ids in (A, B)], phase)
    ended: list[object] = []

    def read(answer: Answer) -> None:
        try:
            ended.append(answer.text())
        except BaseException as error:
            ended.append(error)

    async def read_in_loop(answer: Answer) -> None:
        try:
            ended.append([piece async for piece in answer])
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=read, args=(answer,)) for answer in answers]
    threads += [
        threading.Thread(target=lambda answer=answer: asyncio.run(read_in_loop(answer))) for answer in answers
    ]
    threads += [threading.Thread(target=engine.close)]
    for thread in threads:
        thread.start()
    threads[-1].join(0.05)
    watched.go()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not engine.thread.is_alive()
    assert [type(each) for each in ended] == [DeviceError] * 4
    assert [answer.finish_reason for answer in answers] == ["error"] * 2
    with pytest.raises(DeviceError, match="the engine is closed"):
        engine.submit(asked(A))
    engine.close()
    assert tokens(alone(engine.llm, asked(A, 30))) == expected


def test_the_model_is_closed_while_it_runs(engine: Engine, watched: Watched) -> None:
    answers = watched.submit([asked(ids, 30) for ids in (A, B)], "step")
    closing = threading.Thread(target=engine.llm.close)
    closing.start()
    watched.go()
    closing.join(PATIENCE)
    for answer in answers:
        with pytest.raises(DeviceError, match="closed"):
            answer.pieces()
    with pytest.raises(DeviceError, match="closed"):
        engine.submit(asked(A)).pieces()


def test_a_dropped_engine(tiny_llm: LLM) -> None:
    """An engine without references stops its thread, but only after its open answers are complete."""
    engine = Engine(tiny_llm)
    thread = engine.thread
    answer = engine.submit(asked(A, 6))
    del engine
    gc.collect()
    assert len(answer.pieces()) == 6
    assert answer.finish_reason == "length"
    assert thread.is_alive()
    del answer
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


# Event loops -----------------------------------------------------------------------------------


def test_a_task_that_is_cancelled(engine: Engine, watched: Watched) -> None:
    """Cancelling the reading task does not cancel the answer: another reader gets it. Closing the event loop
    in between does no harm."""
    (expected,) = tokens_alone(engine.llm, [asked(A, 6)])
    (answer,) = watched.submit([asked(A, 6)], "prefill")

    async def read() -> None:
        async for _ in answer:
            pass

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), 0.01)

    asyncio.run(give_up())
    events = asyncio.new_event_loop()
    task = events.create_task(read())
    events.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # on purpose
    events.close()
    watched.go()
    assert tokens(answer.pieces()) == expected
