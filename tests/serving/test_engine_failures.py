"""A failure of one request ends that request with its error; other requests are not affected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import (
    MODEL,
    PATIENCE,
    SHORT,
    A,
    B,
    Watched,
    asked,
    at_once,
    either_way,
    tokens,
    tokens_alone,
)
from faulty import CALLS, MESSAGE, Faults

from pteron import Device, DeviceError, DeviceLost, InputError
from pteron.llm import LLM, Grammar, Sampling
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.engine import speculation
from pteron.llm.engine.speculation import Proposer, Speculator
from pteron.llm.sampling.batch_sampler import BatchSampler
from pteron.serving import Answer, Engine

TESTS = Path(__file__).parents[1]


@pytest.fixture
def expected(engine: Engine) -> list[list[int]]:
    return tokens_alone(engine.llm, [asked(A), asked(B)])


def ends(answers: list[Answer]) -> Iterator[list[int] | BaseException]:
    for answer in answers:
        try:
            yield tokens(answer.pieces())
        except BaseException as error:
            yield error


@pytest.mark.long(every=25)
@either_way
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind != "fill"])
def test_a_call_that_fails(
    engine: Engine, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch, kind: str, after: bool
) -> None:
    """Fails each device call in turn. At most one of two requests fails (both if they step as a batch), and
    the next answers are right."""
    most = 2 if engine.slots else 1
    faults, at, failures = Faults(monkeypatch), 0, 0
    while True:
        engine.llm.reset()
        faults.arm(kind, at, after=after)
        faults._thread = engine.thread
        found = list(ends([engine.submit(asked(ids)) for ids in (A, B)]))
        if not faults.disarm():
            assert found == expected
            break
        errors = [each for each in found if isinstance(each, BaseException)]
        assert len(errors) <= most
        assert all(isinstance(error, DeviceError) and MESSAGE in str(error) for error in errors)
        assert all(each == right or each in errors for each, right in zip(found, expected, strict=True))
        assert list(ends([engine.submit(asked(ids)) for ids in (A, B)])) == expected, (kind, at)
        failures += 1
        at += 1 + at // 2
    assert failures
    assert 0 < engine.load.failed <= most * failures
    assert engine.load.running == 0


def test_a_tokenizer_that_fails(
    engine: Engine, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def token_bytes(_: object, token: int) -> bytes:
        if token == expected[0][2]:
            raise ValueError("no such token")
        return b"x"

    monkeypatch.setattr(ByteTokenizer, "token_bytes", token_bytes)
    first, second = ends([engine.submit(asked(ids)) for ids in (A, B)])
    assert isinstance(first, ValueError)
    assert (second == expected[1]) is (expected[0][2] not in expected[1])


class FailingProposer(Proposer):
    """Proposes nothing right. Its method `fails` raises if the prompt is B."""

    fails = ""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._is_bad = tuple(prompt) == B
        self._note("begin")

    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        self._note("propose")
        return [0] * min(most, 2)

    def score(self, drawn: Sequence[int]) -> list[bool]:
        self._note("score")
        return []

    def close(self) -> None:
        self._note("close")

    def _note(self, method: str) -> None:
        if self._is_bad and method == self.fails:
            raise RuntimeError(f"unforeseen in {method}")


@pytest.mark.long(every=4)
@pytest.mark.parametrize("method", ["begin", "propose", "score", "close"])
def test_a_proposer_that_fails(
    device: Device,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    """The text of a request whose proposer cannot be closed is complete; then the log has the error."""
    requests = [asked(A), asked(B), asked(SHORT)]
    expected = tokens_alone(engine.llm, requests)
    monkeypatch.setattr(speculation, "Lookup", FailingProposer)
    monkeypatch.setattr(Speculator, "cost", lambda _, rows: 1 + rows / 100)  # every proposal seems to pay
    monkeypatch.setattr(FailingProposer, "fails", method)
    monkeypatch.setattr(FailingProposer, "is_scored", method == "score")
    with (
        LLM(MODEL, ByteTokenizer(), device=device, speculate="lookup") as llm,
        Engine(llm, batched=True) as speculating,
    ):
        first, second, third = ends(at_once(speculating, requests))
        assert [first, third] == [expected[0], expected[2]]
        assert speculating.is_alive
        assert llm.pool.idle == llm.pool.live
    if method == "close":
        assert second == expected[1]
        assert "unforeseen in close" in caplog.text
        return
    assert isinstance(second, RuntimeError)
    (note,) = second.__notes__  # for the log: where it happened, without the frames, which hold memory
    assert "In the engine:" in note
    assert "in _note" in note


@pytest.mark.long(every=2)
@pytest.mark.parametrize("function", ["begin", "allow"])
def test_a_row_that_cannot_be_prepared(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The other rows of the batch, prepared before it and after it, step without it."""
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    pattern = Grammar.regex(engine.llm.tokenizer, "[a-f]{8}") if function == "allow" else None
    sampling = Sampling(temperature=1.1, seed=3, repetition_penalty=1.4)
    requests = [asked(ids, 30, sampling=sampling, grammar=pattern) for ids in (A, B, SHORT)]
    expected = tokens_alone(engine.llm, requests)
    prepare, calls = getattr(BatchSampler, function), count()

    def failing(*arguments: Any) -> Any:
        if next(calls) == 1:  # of the second row
            raise RuntimeError("unforeseen")
        return prepare(*arguments)

    monkeypatch.setattr(BatchSampler, function, failing)
    found = list(ends(at_once(engine, requests)))
    errors = [each for each in found if isinstance(each, BaseException)]
    assert [str(error) for error in errors] == ["unforeseen"]
    assert all(each == right or each in errors for each, right in zip(found, expected, strict=True))
    assert engine.load.failed == 1


def test_a_sequence_that_another_takes_over(
    engine: Engine, watched: Watched, expected: list[list[int]]
) -> None:
    answers = watched.submit([asked(A), asked(B)], "step")
    engine.llm.model.claim()  # the first sequence of the pool
    watched.go()
    first, second = ends(answers)
    assert isinstance(first, InputError)
    assert second == expected[1]


def test_streams_hold_all_sequences(engine: Engine, expected: list[list[int]]) -> None:
    """All sequences belong to the model's own streams: requests wait until a stream releases one."""
    assert isinstance(engine.llm, LLM)
    streams = [engine.llm.generate(A, max_new_tokens=3, stop_ids=()) for _ in range(SEQUENCES_MAX)]
    for stream in streams:
        next(stream)
    answers = [engine.submit(asked(ids)) for ids in (A, B)]
    late = engine.submit(asked(A, seconds=0.05))
    assert late.pieces() == []
    assert late.finish_reason == "time"
    assert [answer.finish_reason for answer in answers] == ["", ""]
    assert engine.load.waiting == 2
    streams[3].close()
    assert list(ends(answers)) == expected


def test_a_lost_device(device: Device) -> None:
    """Open and later requests fail with the device's error, and the engine can be closed."""
    own = Device(device.adapter)
    llm = LLM(MODEL, ByteTokenizer(), device=own)
    with Engine(llm) as engine:
        watched = Watched(engine)
        answers = watched.submit([asked(ids, 30) for ids in (A, B)], "step", 1)
        own.wait()  # the device still works, and its callbacks must not run during Python's shutdown
        own.mark_lost("testing")
        watched.go()
        for answer in answers:
            with pytest.raises(DeviceLost):
                answer.pieces()
        with pytest.raises(DeviceLost):
            engine.submit(asked(A)).pieces()
        assert engine.load.failed == 3
        assert engine.load.running == 0


def test_a_fault_of_the_engine_itself(
    engine: Engine, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All open requests get the error, and so does every later submit."""

    def parts(_: object) -> Any:
        raise RuntimeError("unforeseen")

    answers = watched.submit([asked(A), asked(B)], "prefill")
    monkeypatch.setattr(engine.scheduler.stepping.stepper, "parts", parts)
    watched.go()
    assert [type(end) for end in ends(answers)] == [RuntimeError] * 2
    engine.thread.join(PATIENCE)
    with pytest.raises(DeviceError, match="the engine has ended: unforeseen"):
        engine.submit(asked(A))


FORKED = f"""
import os, sys, threading
sys.path[:0] = {[str(TESTS / "llm"), str(TESTS)]!r}
from byte_tokenizer import ByteTokenizer
from walls import put_up_walls
from pteron import DeviceError
from pteron.llm import LLM
from pteron.serving import Engine, Request

engine = Engine(LLM({str(MODEL)!r}, ByteTokenizer()))
expected = [piece.token for piece in engine.submit(Request((1, 2, 3), 4))]
answer = engine.submit(Request((1, 2, 3), 40, stop_ids=()))
held, done = threading.Event(), threading.Event()

def hold():  # as a thread does that starts a stream
    with engine.llm.pool._lock:
        held.set()
        done.wait(60)

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    if sys.platform == "linux":
        put_up_walls()
    refused = 0
    submit, start = lambda: engine.submit(Request((1, 2, 3), 4)), lambda: Engine(engine.llm)
    stream = lambda: list(engine.llm.generate([1, 2, 3], max_new_tokens=4))
    for call in (submit, start, answer.text, engine.drain, stream):
        try:
            call()
        except DeviceError as error:
            refused += "spawn" in str(error)
    engine.close()
    del answer
    os._exit(0 if refused == 5 else 1)
code = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert code == 0, code
answer.text()
assert answer.finish_reason == "context" or answer.finish_reason == "length"
assert [piece.token for piece in engine.submit(Request((1, 2, 3), 4))] == expected
engine.close()
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked() -> None:
    """A forked child has no engine thread, and no thread that could release a lock: calls raise an error
    instead of waiting forever, and call no driver."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=100)
